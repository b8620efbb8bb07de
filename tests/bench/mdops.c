/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mdops DIR [ITEMS [PROCESSES]]: metadata operations per second of a mounted file system.
 *
 * Each process has a directory of its own below DIR. All processes run one phase after the other,
 * in step: dir_create, create (and close), stat, open (and close), readdir_stat, rename, unlink,
 * dir_remove; ITEMS of each per process. Prints "phase operations-per-second", from the first start
 * to the last end. On any failure it exits with 1 and a message.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MAX = 1024, ITEMS_MAX = 1000000 };

struct worker {
	char dir[3000];   /* of this process: for the directories */
	char files[3100]; /* in dir: for the files */
	int items;
};

static _Noreturn void fail(const char *what, const char *path)
{
	fprintf(stderr, "mdops: %s %s: %s\n", what, path, strerror(errno));
	_exit(1);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#define PATH_SIZE 4096
static const char *name(const char *dir, char kind, int i, char buf[PATH_SIZE])
{
	snprintf(buf, PATH_SIZE, "%s/%c%d", dir, kind, i);
	return buf;
}

static void dir_create(const struct worker *w)
{
	char path[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		if (mkdir(name(w->dir, 'd', i, path), 0755) < 0)
			fail("mkdir", path);
}

static void open_close(const char *path, int flags)
{
	int fd = open(path, flags, 0644);

	if (fd < 0 || close(fd) < 0)
		fail("open", path);
}

static void create(const struct worker *w)
{
	char path[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		open_close(name(w->files, 'f', i, path), O_CREAT | O_EXCL | O_WRONLY);
}

static void stat_all(const struct worker *w)
{
	char path[PATH_SIZE];
	struct stat st;

	for (int i = 0; i < w->items; i++)
		if (stat(name(w->files, 'f', i, path), &st) < 0)
			fail("stat", path);
}

static void open_all(const struct worker *w)
{
	char path[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		open_close(name(w->files, 'f', i, path), O_RDONLY);
}

static void readdir_stat(const struct worker *w)
{
	DIR *d = opendir(w->files);
	struct dirent *e;
	struct stat st;
	int n = 0;

	if (!d)
		fail("opendir", w->files);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			fail("fstatat", e->d_name);
		n++;
	}
	closedir(d);
	errno = EIO;
	if (n != w->items)
		fail("wrong number of entries in", w->files);
}

static void rename_all(const struct worker *w)
{
	char from[PATH_SIZE], to[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		if (rename(name(w->files, 'f', i, from), name(w->files, 'g', i, to)) < 0)
			fail("rename", from);
}

static void unlink_all(const struct worker *w)
{
	char path[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		if (unlink(name(w->files, 'g', i, path)) < 0)
			fail("unlink", path);
}

static void dir_remove(const struct worker *w)
{
	char path[PATH_SIZE];

	for (int i = 0; i < w->items; i++)
		if (rmdir(name(w->dir, 'd', i, path)) < 0)
			fail("rmdir", path);
}

static const struct {
	const char *name;
	void (*run)(const struct worker *w);
} phases[] = {
	{ "dir_create", dir_create },     { "create", create },       { "stat", stat_all },
	{ "open", open_all },             { "readdir_stat", readdir_stat }, { "rename", rename_all },
	{ "unlink", unlink_all },         { "dir_remove", dir_remove },
};
enum { N_PHASES = sizeof(phases) / sizeof(phases[0]) };

/* In memory that the processes share. */
struct shared {
	pthread_barrier_t barrier;
	double start[PROCESSES_MAX][N_PHASES], end[PROCESSES_MAX][N_PHASES];
};

static void work(struct shared *s, const char *top, int process, int items)
{
	struct worker w = { .items = items };

	snprintf(w.dir, sizeof(w.dir), "%s/p%d", top, process);
	snprintf(w.files, sizeof(w.files), "%s/files", w.dir);
	if (mkdir(w.dir, 0755) < 0 || mkdir(w.files, 0755) < 0)
		fail("mkdir", w.files);
	for (int i = 0; i < N_PHASES; i++) {
		pthread_barrier_wait(&s->barrier);
		s->start[process][i] = seconds();
		phases[i].run(&w);
		s->end[process][i] = seconds();
	}
	if (rmdir(w.files) < 0 || rmdir(w.dir) < 0)
		fail("rmdir", w.dir);
}

static void report(const struct shared *s, int n_processes, int items)
{
	for (int i = 0; i < N_PHASES; i++) {
		double first = s->start[0][i], last = s->end[0][i];

		for (int p = 1; p < n_processes; p++) {
			first = s->start[p][i] < first ? s->start[p][i] : first;
			last = s->end[p][i] > last ? s->end[p][i] : last;
		}
		printf("%s %.0f\n", phases[i].name, (double)items * n_processes / (last - first));
	}
}

static int number(const char *text, int max)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (*end || v < 1 || v > max) {
		fprintf(stderr, "mdops: '%s' is no number from 1 to %d\n", text, max);
		exit(2);
	}
	return (int)v;
}

int main(int argc, char **argv)
{
	static pid_t pids[PROCESSES_MAX];
	pthread_barrierattr_t attr;
	struct shared *s;
	int status, failed = 0;

	if (argc < 2 || argc > 4) {
		fputs("usage: mdops DIR [ITEMS [PROCESSES]]\n", stderr);
		return 2;
	}
	int items = argc > 2 ? number(argv[2], ITEMS_MAX) : 2000;
	int n = argc > 3 ? number(argv[3], PROCESSES_MAX) : 2;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		fail("mmap", "");
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->barrier, &attr, (unsigned)n);
	for (int p = 0; p < n; p++) {
		pids[p] = fork();
		if (pids[p] < 0)
			fail("fork", "");
		if (pids[p] == 0) {
			work(s, argv[1], p, items);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++) {
		pid_t ended = wait(&status);
		for (int p = 0; p < n; p++)
			if (pids[p] == ended)
				pids[p] = 0;
		if (status == 0 || failed)
			continue;
		failed = 1;
		for (int p = 0; p < n; p++) /* they would wait for the dead process at the next
					     * phase */
			if (pids[p] > 0)
				kill(pids[p], SIGKILL);
	}
	if (!failed)
		report(s, n, items);
	return failed;
}
