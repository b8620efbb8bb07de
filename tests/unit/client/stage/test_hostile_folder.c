/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other users have put below a stage directory before it is used: links, folders and files of
 * their own, pipes, second names. Each is refused with a message that names it, or removed, and
 * nothing outside changes; for root and for an ordinary user. Needs root.
 * waits: yes
 */
#include "client/include/leat/leat_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

#define USER    2001
#define SOMEONE "2002"

/* $D: DIR/.leat, $C: $D/ID, $O: a folder outside, $V: a file in it. The stager owns everything
 * except what is planted. */
static const struct plant {
	const char *what;
	const char *how;
	const char *names; /* the end of the refused path; NULL: the call replaces it */
} plants[] = {
	{"the base is a link", "ln -s $O $D", "/.leat"},
	{"the base is somebody's", "mkdir $D; chown " SOMEONE " $D", "/.leat"},
	{"anybody may write to the base", "mkdir $D; chown $U $D; chmod 0777 $D", "/.leat"},
	{"the base is a file", "touch $D; chown $U $D", "/.leat"},
	{"the copy's folder is a link", "mkdir $D; ln -s $O $C", "$ID"},
	{"the copy's folder is somebody's", "mkdir -p $C; chown " SOMEONE " $C", "$ID"},
	{"part is a link", "mkdir -p $C; ln -s $O $C/part", "/part"},
	{"part is somebody's", "mkdir -p $C/part; chown " SOMEONE " $C/part", "/part"},
	{"a part file is a link", "mkdir -p $C/part; ln -s $V $C/part/0", "/part/0"},
	{"a part file is another's second name", "mkdir -p $C/part; ln $V $C/part/0", "/part/0"},
	{"a part file is a pipe", "mkdir -p $C/part; mkfifo $C/part/0", "/part/0"},
	{"a part file is a folder", "mkdir -p $C/part/0", "/part/0"},
	{"data is a link", "mkdir -p $C; ln -s $O $C/data", "/data"},
	{"data is somebody's", "mkdir -p $C/data; chown " SOMEONE " $C/data", "/data"},
	{"a folder of data is a link", "mkdir -p $C/data; ln -s $O $C/data/sub", "/data/sub"},
	{"a file of data is a link", "mkdir -p $C/data; ln -s $V $C/data/file", NULL},
	{"a file of data is a second name", "mkdir -p $C/data; ln $V $C/data/file", NULL},
	{"home is a link", "mkdir -p $C; ln -s $V $C/home", "/home"},
	{"places is a link", "mkdir -p $C; ln -s $V $C/places", "/places"},
	{"the lock is a link", "mkdir $D; ln -s $V $C.lock", ".lock"},
	{"the lock is a pipe", "mkdir $D; mkfifo $C.lock", ".lock"},
	{"the lock is a folder", "mkdir -p $C.lock", ".lock"},
	{"the lock is a second name", "mkdir $D; ln $V $C.lock", ".lock"},
	{"admission is a link", "mkdir $D; ln -s $V $D/admission", "/admission"},
	{"the lease is a link", "mkdir -p $C; ln -s $V $C/lease", "/lease"},
	{"the leases are elsewhere", "mkdir -p $C; ln -s $O $C/leases", "/leases"},
	{"the bitmap is a link", "mkdir -p $C; ln -s $V $C/bitmap", "/bitmap"},
	{"what is set aside is a link", "mkdir -p $C; ln -s $V $C/reserve", "/reserve"},
	{"the inodes are elsewhere", "mkdir $D; ln -s $O $D/inodes", "/inodes"},
	{"the sources are elsewhere", "mkdir $D; ln -s $O $D/sources", "/sources"},
	{"the sources are somebody's", "mkdir -p $D/sources; chown " SOMEONE " $D/sources",
	 "/sources"},
	{"the manifest is a link", "mkdir -p $C; ln -s $V $C/manifest", NULL},
	{"READY is a link", "mkdir -p $C; ln -s $V $C/READY", NULL},
	{"events is a link", "mkdir $D; ln -s $V $D/events", NULL},
};

struct world {
	char root[FOLDER_MAX], src[96], to[96], out[96];
	char id[80];
	uid_t uid;
};

/* Returns the text that the shell expands it to, with the names above. */
static char *shell(const struct world *w, const char *text)
{
	char *cmd, *said = calloc(1, 65536);
	assert_true(asprintf(&cmd,
			     "ID=%s; D=%s/.leat; C=$D/$ID; O=%s; V=$O/victim; U=%u; %s", w->id,
			     w->to, w->out, (unsigned)w->uid, text) > 0);
	FILE *f = popen(cmd, "r");
	assert_non_null(f);
	size_t n = fread(said, 1, 65535, f);
	said[n] = 0;
	assert_int_equal(pclose(f), 0);
	free(cmd);
	return said;
}

static void make_world(struct world *w, uid_t uid)
{
	*w = (struct world){.uid = uid};
	make_folder("/tmp", "plants", w->root); /* TMPDIR may be accessible to root only */
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	snprintf(w->out, sizeof(w->out), "%s/out", w->root);
	char text[1024];
	snprintf(text, sizeof(text),
		 "chmod 755 %s; mkdir -p %s/sub %s $O; echo secret >$V; chmod 600 $V; "
		 "head -c 70000 /dev/zero >%s/file; echo b >%s/sub/b; chown -R $U %s %s $O",
		 w->root, w->src, w->to, w->src, w->src, w->src, w->to);
	free(shell(w, text));
}

/* Stages in a process of its own, as the user. *r: the result. */
static void stage_in(const struct world *w, struct leat_stage_result *r)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct leat_stage_options o = {.size = sizeof(o),
					       .source = w->src,
					       .to = w->to,
					       .lease = "job"};
		*r = (struct leat_stage_result){.size = sizeof(*r)};
		if (w->uid && (setgid(w->uid) < 0 || setuid(w->uid) < 0))
			_exit(2);
		int rc = leat_stage_in(&o, r);
		_exit((rc < 0) != (r->code != 0) ||
		      write(p[1], r, sizeof(*r)) != (ssize_t)sizeof(*r));
	}
	int status;
	close(p[1]);
	size_t got = 0;
	for (ssize_t n = 1; n > 0 && got < sizeof(*r); got += n > 0 ? (size_t)n : 0)
		n = read(p[0], (char *)r + got, sizeof(*r) - got);
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(got, sizeof(*r));
}

static bool ends(const struct world *w, const char *path, const char *end)
{
	const char *want = strcmp(end, "$ID") == 0 ? w->id : end;
	size_t n = strlen(path), m = strlen(want);
	return n >= m && strcmp(path + n - m, want) == 0;
}

/* Returns whether the result is the expected one. */
static bool try_plant(struct world *w, const struct plant *p, struct leat_stage_result *r)
{
	static const char look[] =
		"cd $O; find . -printf '%p %U %m %s %n\\n' | sort; sha256sum victim";
	char *cmd;
	/* The stager owns what is not planted, although the test has made it. */
	assert_true(asprintf(&cmd,
			     "rm -rf $D; umask 022; %s; "
			     "find $D -user 0 -exec chown -h $U {} +; true",
			     p->how) > 0);
	free(shell(w, cmd));
	free(cmd);
	char *before = shell(w, look);
	stage_in(w, r);
	/* A second name changes the link count by one. */
	char *after = shell(w, look);
	bool good = p->names ? r->code == LEAT_STAGE_PERMISSION && ends(w, r->fail_path, p->names)
			     : r->code == LEAT_STAGE_DONE;
	bool linked = strstr(p->how, "ln $V") != NULL && !p->names;
	if (!linked && strcmp(before, after) != 0)
		good = false;
	if (!good)
		print_message("%s (user %u): code %d, %s: %s\nbefore:\n%safter:\n%s", p->what,
			      (unsigned)w->uid, r->code, r->fail_path, r->message, before, after);
	free(before);
	free(after);
	free(shell(w, "[ \"$(cat $V)\" = secret ] && [ \"$(stat -c %a $V)\" = 600 ]"));
	return good;
}

static void try_all(uid_t uid)
{
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	struct world w;
	uint32_t bad = 0;
	make_world(&w, uid);
	stage_in(&w, r);
	assert_int_equal(r->code, LEAT_STAGE_DONE);
	snprintf(w.id, sizeof(w.id), "%.64s", r->id);
	for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++)
		bad += !try_plant(&w, &plants[i], r);
	remove_folder(w.root);
	free(r);
	assert_int_equal(bad, 0);
}

static void test_root_believes_nothing(void **state)
{
	(void)state;
	try_all(0);
}

static void test_a_user_believes_nothing(void **state)
{
	(void)state;
	try_all(USER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root_believes_nothing),
		cmocka_unit_test(test_a_user_believes_nothing),
	};
	if (geteuid() != 0) {
		printf("skipped: it plants what belongs to others, as root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
