/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* the program itself, for its table of commands and its global options */
#define main leat_main
int leat_main(int argc, char **argv);
#include "tools/leat.c"
#undef main

const char leat_build[] = "0.1.0+unit";

#define ARGS_MAX 32

struct job {
	void (*fn)(void *arg);
	void *arg;
	const char *lines;
	const char *folder;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void put_file(const char *name, const char *text, size_t fill)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	while (fill-- > 0)
		fputc('a', f);
	assert_int_equal(fclose(f), 0);
}

static void make_folder(char folder[PATH_MAX])
{
	const char *tmp = getenv("TMPDIR");
	char conf[PATH_MAX + 128], made[PATH_MAX];

	snprintf(made, sizeof(made), "%s/leat-unit.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(made));
	assert_non_null(realpath(made, folder));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(mkdir("dir", 0755) | mkdir("dir/sub", 0755) | mkdir("copies", 0755), 0);
	put_file("file", "hello\n", 0);
	put_file("dir/a", "", 5000);
	put_file("dir/sub/b", "b", 0);
	put_file("bad.conf", "[cluster]\nno_such = 1\n", 0);
	snprintf(conf, sizeof(conf),
		 "[cluster]\nname = unit\nkey_file = %s/key\nmds = 127.0.0.1:1\n", folder);
	put_file("good.conf", conf, 0);
}

/* Returns text with `from` replaced by `to`; the caller frees it. */
static char *replaced(const char *text, const char *from, const char *to)
{
	char *all = NULL;
	size_t size;
	FILE *f = open_memstream(&all, &size);

	assert_non_null(f);
	for (const char *at; (at = strstr(text, from)) != NULL; text = at + strlen(from))
		fprintf(f, "%.*s%s", (int)(at - text), text, to);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	return all;
}

_Noreturn void leave(int code)
{
	fflush(stdout);
	_exit(code);
}

/* Runs in the child. */
static int run_line(const char *line, const char *folder)
{
	char *argv[ARGS_MAX + 2] = {"leat"}, *save = NULL, *words = strdup(line);
	int argc = 1;

	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = strcmp(w, "''") == 0 ? "" : replaced(w, "~", folder);
	int code = leat_main(argc, argv);
	fflush(stdout);
	return code;
}

static void in_child(const struct job *job, int out, int err)
{
	static const char *const unset[] = {"LEAT_STAGE_DIR", "SLURM_JOB_ID", "PBS_NODEFILE",
					    "PE_HOSTFILE"};
	char conf[PATH_MAX + 16];
	int code = 0, null = open("/dev/null", O_RDONLY);

	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	for (size_t i = 0; i < ARRAY_SIZE(unset); i++)
		unsetenv(unset[i]);
	snprintf(conf, sizeof(conf), "%s/none.conf", job->folder ? job->folder : "");
	setenv("LEAT_CONF", conf, 1);
	if (job->fn)
		job->fn(job->arg);
	else
		code = run_line(job->lines, job->folder);
	leave(code);
}

static char *contents(int fd, const char *folder)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)size + 1), *shown;

	assert_int_equal(pread(fd, text, (size_t)size, 0), size);
	close(fd);
	if (!folder)
		return text;
	shown = replaced(text, folder, "~");
	free(text);
	return shown;
}

static struct run run_job(const struct job *job)
{
	struct run r = {.code = -1};
	int out = memfd_create("out", 0), err = memfd_create("err", 0), status;

	assert_true(out >= 0 && err >= 0);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		in_child(job, out, err);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status))
		r.code = WEXITSTATUS(status);
	r.out = contents(out, job->folder);
	r.err = contents(err, job->folder);
	return r;
}

static void remove_folder(const char *folder)
{
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

struct run run_lines(const char *lines)
{
	char folder[PATH_MAX], *copy = strdup(lines), *save = NULL;
	struct run r = {.code = -1};

	make_folder(folder);
	for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		struct job job = {.lines = l, .folder = folder};

		run_fini(&r);
		r = run_job(&job);
	}
	free(copy);
	remove_folder(folder);
	return r;
}

struct run run_leat(const char *line)
{
	return run_lines(line);
}

struct run run_function(void (*fn)(void *arg), void *arg)
{
	struct job job = {.fn = fn, .arg = arg};

	return run_job(&job);
}

void run_fini(struct run *r)
{
	free(r->out);
	free(r->err);
	r->out = r->err = NULL;
}

/* Prints long texts itself, because cmocka truncates them. */
static void assert_text(const char *what, const char *text, const char *expected)
{
	if (!expected ||
	    (*expected == '*' ? strstr(text, expected + 1) != NULL : strcmp(text, expected) == 0))
		return;
	fprintf(stderr, "%s\n--- printed:\n%s--- expected:\n%s---\n", what, text, expected);
	fail();
}

void run_table(const struct run_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct run r = run_lines(rows[i].line);

		assert_text(rows[i].line, r.out, rows[i].out);
		assert_text(rows[i].line, r.err, rows[i].err);
		assert_int_equal(r.code, rows[i].code);
		run_fini(&r);
	}
}

void run_steps(const struct run_row *rows, size_t n)
{
	char folder[PATH_MAX];

	make_folder(folder);
	for (size_t i = 0; i < n; i++) {
		struct job job = {.lines = rows[i].line, .folder = folder};
		struct run r = run_job(&job);

		assert_text(rows[i].line, r.out, rows[i].out);
		assert_text(rows[i].line, r.err, rows[i].err);
		assert_int_equal(r.code, rows[i].code);
		run_fini(&r);
	}
	remove_folder(folder);
}

void assert_prints(void (*fn)(void *arg), void *arg, const char *out)
{
	struct run r = run_function(fn, arg);

	assert_text("standard output", r.out, out);
	run_fini(&r);
}

void assert_says(void (*fn)(void *arg), void *arg, const char *err)
{
	struct run r = run_function(fn, arg);

	assert_text("standard error", r.err, err);
	run_fini(&r);
}
