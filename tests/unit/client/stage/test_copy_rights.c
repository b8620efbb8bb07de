/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights of a copy whose folders and files belong to other users, who attack it: rights that were
 * narrowed at the source while a copy was incomplete, files and folders that replace the copy's
 * own, links that are replaced while they are made, files that cannot be changed.
 * Needs root.
 * waits: yes
 */
#include "client/dataset/manifest_file.h"
#include "client/dataset/vol_local.h"
#include "client/include/leat/leat_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dataset/beneath.h"
#include "client/dataset/vol.h"
#include "client/stage/store/inode_index.h"
#include "client/stage/store/staged.h"
#include "client/stage/store/stamps.h"
#include "common/base/status.h"
#include "common/rt/env_real.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "tests/lib/folder.h"

#define USER  2001
#define OTHER 2002

/* $R: everything, $S: the source, $D: the copy's data folder, $T: the stage directory. */
struct world {
	char root[FOLDER_MAX], src[96], to[96], data[256];
	int unpack;
	char named[64], catalog[96]; /* named: staged by that name, of this catalog */
	struct leat_stage_result *r;
};

static void shell(const struct world *w, const char *text)
{
	char *cmd;
	assert_true(asprintf(&cmd, "set -e; R=%s; S=%s; T=%s; D=%s; umask 022; %s", w->root, w->src,
			     w->to, w->data, text) > 0);
	int status = system(cmd);
	if (status != 0)
		print_message("failed: %s\n", cmd);
	free(cmd);
	assert_int_equal(status, 0);
}

static struct world make_world(const char *source)
{
	struct world w = {.r = calloc(1, sizeof(*w.r))};
	assert_non_null(w.r);
	make_folder("/tmp", "grants", w.root); /* TMPDIR may be accessible to root only */
	snprintf(w.src, sizeof(w.src), "%s/src", w.root);
	snprintf(w.to, sizeof(w.to), "%s/to", w.root);
	shell(&w, "chmod 755 $R; mkdir $S $T");
	shell(&w, source);
	return w;
}

static void end_world(struct world *w)
{
	remove_folder(w->root);
	free(w->r);
}

static void stage_here(struct world *w, uint64_t max_rate)
{
	struct leat_stage_options o = {.size = sizeof(o),
				       .source = w->named[0] ? w->named : w->src,
				       .catalog = w->named[0] ? w->catalog : NULL,
				       .to = w->to,
				       .max_rate = max_rate,
				       .unpack = w->unpack};
	*w->r = (struct leat_stage_result){.size = sizeof(*w->r)};
	int rc = leat_stage_in(&o, w->r);
	assert_int_equal(rc < 0, w->r->code != 0);
	if (w->r->path[0])
		snprintf(w->data, sizeof(w->data), "%.255s", w->r->path);
}

static void stage(struct world *w)
{
	stage_here(w, 0);
	if (w->r->code)
		print_message("%d: %s: %s\n", w->r->code, w->r->fail_path, w->r->message);
	assert_int_equal(w->r->code, LEAT_STAGE_DONE);
}

static void join(const struct world *w, const char *name, char ret_path[512])
{
	snprintf(ret_path, 512, "%.255s/%s", w->data, name);
}

static uint32_t mode_of(const struct world *w, const char *name)
{
	char path[512];
	struct stat st;
	join(w, name, path);
	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

/* Runs fn in a process of its own, as the user; fn exits with the result. */
static pid_t as_user(uid_t uid, void (*fn)(struct world *w), struct world *w)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	if (setgid(uid) < 0 || setuid(uid) < 0)
		_exit(2);
	fn(w);
	_exit(0);
}

static void ends_well(pid_t pid)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_goes_on_with_the_rights_of_now(void **state)
{
	struct world w = make_world("echo a >$S/a; echo b >$S/b; mkdir $S/d; echo c >$S/d/c; "
				    "chown -R 2001:2001 $S/a");
	(void)state;
	stage(&w);
	assert_int_equal(mode_of(&w, "a"), 0444);
	/* The copy is not whole, and is continued; its rights were wider than those of its source
	 * are now. */
	shell(&w, "rm -f $D/b; chmod 600 $S/a; chmod 700 $S/d; chmod 604 $S/d/c");
	stage(&w);
	assert_int_equal(mode_of(&w, "a"), 0400);
	assert_int_equal(mode_of(&w, "d"), 0500);
	assert_int_equal(mode_of(&w, "d/c"), 0404);
	end_world(&w);
}

static int64_t changed(const struct world *w, const char *name)
{
	char path[512];
	struct stat st;
	join(w, name, path);
	assert_int_equal(stat(path, &st), 0);
	return (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
}

static void test_what_is_right_stays_as_it_is(void **state)
{
	struct world w = make_world("echo a >$S/a; echo b >$S/b; echo c >$S/c; chown 2001 $S/a; "
				    "setfacl -m u:2002:r $S/c");
	(void)state;
	stage(&w);
	int64_t a = changed(&w, "a"), b = changed(&w, "b"), c = changed(&w, "c");
	shell(&w, "sleep 0.02; chmod 600 $S/b");
	stage(&w);
	assert_int_equal(changed(&w, "a"), a);
	assert_true(changed(&w, "b") > b);
	assert_int_equal(changed(&w, "c"), c);
	end_world(&w);
}

static void test_a_file_of_others_gets_no_rights(void **state)
{
	/* Root's file is in a folder of the user's, on the same file system. */
	struct world w = make_world("mkdir $S/d $R/own; echo hello >$S/d/f; echo sixth >$R/own/x; "
				    "chmod 600 $R/own/x; echo g >$S/d/g; "
				    "chown -R 2001:2001 $S; chown 2001 $R/own");
	(void)state;
	stage(&w);
	/* The user moves the file into the copy, and has the rights set again. */
	shell(&w, "setpriv --reuid 2001 --regid 2001 --clear-groups "
		  "sh -ec \"chmod u+w $D/d; mv -f $R/own/x $D/d/f\"; chmod 640 $S/d/f");
	stage(&w);
	shell(&w, "cmp $D/d/f $S/d/f; cmp $D/d/g $S/d/g; [ \"$(stat -c %u $D/d/f)\" = 2001 ]; "
		  "[ -z \"$(grep -rl sixth $T)\" ]");
	assert_int_equal(mode_of(&w, "d/f"), 0440);
	/* The attack on an incomplete copy: the file is not taken for one that was verified
	 * before. */
	shell(&w, "echo sixth >$R/own/x; chmod 600 $R/own/x; setpriv --reuid 2001 --regid 2001 "
		  "--clear-groups sh -ec \"chmod u+w $D/d; mv -f $R/own/x $D/d/f; "
		  "rm -f $D/d/g\"");
	stage(&w);
	shell(&w, "cmp $D/d/f $S/d/f; cmp $D/d/g $S/d/g; [ -z \"$(grep -rl sixth $T)\" ]");
	end_world(&w);
}

static bool try_for(uint32_t ms, bool (*fn)(struct world *w), struct world *w)
{
	for (uint32_t i = 0; i < ms * 2; i++) {
		if (fn(w))
			return true;
		const struct timespec t = {.tv_nsec = 500000};
		nanosleep(&t, NULL);
	}
	return false;
}

/* Replaces the other user's folder, which is still empty, by one that any user may search. */
static bool exchange(struct world *w)
{
	char private[512], away[512];
	join(w, "private", private);
	join(w, "away", away);
	struct stat st;
	if (stat(private, &st) < 0 || st.st_uid != OTHER)
		return false;
	return chmod(w->data, 0755) == 0 && rename(private, away) == 0 && mkdir(private, 0777) == 0;
}

static bool remove_it(struct world *w)
{
	char private[512];
	join(w, "private", private);
	struct stat st;
	if (stat(private, &st) < 0 || st.st_uid != OTHER)
		return false;
	return chmod(w->data, 0755) == 0 && rmdir(private) == 0;
}

static void exchanger(struct world *w)
{
	_exit(try_for(20000, exchange, w) ? 0 : 1);
}

static void remover(struct world *w)
{
	_exit(try_for(20000, remove_it, w) ? 0 : 1);
}

static void swapped_while_it_comes(void (*fn)(struct world *w))
{
	struct world w = make_world("mkdir $S/private; head -c 3000000 /dev/zero >$S/a; "
				    "echo secret >$S/private/f; chmod 644 $S/private/f; "
				    "chown 2001:2001 $S; chown -R 2002:2002 $S/private; "
				    "chmod 700 $S/private");
	/* A first copy shows where the second will be. */
	stage(&w);
	shell(&w, "rm -rf $T/.leat");
	pid_t pid = as_user(USER, fn, &w);
	stage_here(&w, 2000000);
	ends_well(pid);
	assert_int_equal(w.r->code, LEAT_STAGE_PERMISSION);
	assert_non_null(strstr(w.r->fail_path, "/data/private"));
	shell(&w, "[ -z \"$(setpriv --reuid 2001 --regid 2001 --clear-groups "
		  "grep -rls secret $D)\" ]");
	end_world(&w);
}

static void test_a_folder_is_exchanged_while_it_comes(void **state)
{
	(void)state;
	swapped_while_it_comes(exchanger);
}

static void test_a_folder_is_removed_while_it_comes(void **state)
{
	(void)state;
	swapped_while_it_comes(remover);
}

/* Immediately before a link is given to a user, root's file replaces it: the owner of the folder
 * can do that. */
static struct {
	char own[512], link[512]; /* own "": nothing happens */
	uint32_t n;
} exchanged;

int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags)
{
	struct stat st;
	if (exchanged.own[0] && fstatat(dir, path, &st, flags) == 0 && S_ISLNK(st.st_mode) &&
	    syscall(SYS_renameat2, AT_FDCWD, exchanged.own, AT_FDCWD, exchanged.link,
		    RENAME_EXCHANGE) == 0)
		exchanged.n++;
	return (int)syscall(SYS_fchownat, dir, path, uid, gid, flags);
}

static void test_a_link_that_is_exchanged(void **state)
{
	struct world w = make_world("mkdir $R/own; echo x >$R/own/x; echo f >$S/f; echo g >$S/g; "
				    "ln -s f $S/l; chown -hR 2001:2001 $S");
	(void)state;
	stage(&w);
	/* A copy that exists, and one that is made. */
	for (int i = 0; i < 2; i++) {
		shell(&w, i == 0 ? "rm -f $D/g" : "rm -f $D/g $D/l; rm $R/own/x; echo x >$R/own/x");
		snprintf(exchanged.own, sizeof(exchanged.own), "%.99s/own/x", w.root);
		join(&w, "l", exchanged.link);
		exchanged.n = 0;
		stage_here(&w, 0);
		exchanged.own[0] = 0;
		assert_int_equal(exchanged.n, 1);
		shell(&w, "[ -f $D/l ]; [ -L $R/own/x ]; [ \"$(stat -c %u $D/l)\" = 0 ]");
	}
	end_world(&w);
}

static void test_what_cannot_be_narrowed_keeps_the_rest_closed(void **state)
{
	struct world w = make_world("mkdir $S/d; echo secret >$S/d/f; chmod 700 $S/d; "
				    "chmod 644 $S/d/f");
	char find[600];
	(void)state;
	stage(&w);
	snprintf(find, sizeof(find), "chattr +i %.255s/d/f 2>/dev/null", w.data);
	if (system(find) != 0) {
		print_message("this file system has no immutable files\n");
		end_world(&w);
		skip();
	}
	/* A file that the folder has hidden from other users is now protected by its own rights. */
	shell(&w, "chmod 600 $S/d/f; chmod 755 $S/d");
	stage_here(&w, 0);
	int code = w.r->code;
	uint32_t mode = mode_of(&w, "d");
	shell(&w, "chattr -i $D/d/f");
	assert_int_not_equal(code, LEAT_STAGE_DONE);
	assert_int_equal(mode & 055, 0);
	stage(&w);
	assert_int_equal(mode_of(&w, "d"), 0555);
	assert_int_equal(mode_of(&w, "d/f"), 0400);
	end_world(&w);
}

/* A folder's place below DIR/.leat decides its owner: in another copy's data it could be any
 * user's. */
static void test_no_copies_in_copies(void **state)
{
	static const char *const below[] = {"/.leat", "/.leat/id/data", "/.leat/id/data/more"};
	struct world w = make_world("echo a >$S/a");
	char to[96];
	(void)state;
	memcpy(to, w.to, sizeof(to));
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		snprintf(w.to, sizeof(w.to), "%.60s%s", to, below[i]);
		stage_here(&w, 0);
		assert_int_equal(w.r->code, LEAT_STAGE_USAGE);
		assert_non_null(strstr(w.r->message, ".leat: name the directory"));
	}
	memcpy(w.to, to, sizeof(to));
	shell(&w, "[ -z \"$(ls -A $T)\" ]");
	end_world(&w);
}

/* Members of a private archive, one of which has the name of an archive in another folder beside
 * it. */
static void test_members_called_as_an_archive(void **state)
{
	struct world w = make_world(
		"mkdir $S/x $R/in; echo secret >$R/in/y.tar; cp $R/in/y.tar $R/in/hidden; "
		"tar cf $S/x.tar -C $R/in y.tar hidden; chmod 600 $S/x.tar; chown 2001 $S/x.tar; "
		"echo z >$R/z; tar cf $S/x/y.tar -C $R z; chown -R 2002:2002 $S/x");
	(void)state;
	w.unpack = 1;
	for (int i = 0; i < 2; i++) {
		stage(&w);
		shell(&w, "[ \"$(cat $D/x/y.tar $D/x/hidden $D/x/y/z | tr '\\n' -)\" = "
			  "secret-secret-z- ]; "
			  "[ \"$(stat -c %u:%a $D/x/y.tar $D/x/hidden $D/x/y/z | tr '\\n' -)\" = "
			  "2001:400-2001:400-2001:400- ]");
		/* Nor can the user list its names. */
		shell(&w, "! setpriv --reuid 2002 --regid 2002 --clear-groups ls $D/x 2>&1 | "
			  "grep hidden");
	}
	end_world(&w);
}

/* A user moves another user's private folder away at the source, and puts an own folder in its
 * place. */
static void test_another_folder_at_the_source(void **state)
{
	struct world w = make_world("mkdir -p $S/d/e; echo a >$S/a; echo f >$S/d/e/hidden; "
				    "chown -R 2001:2001 $S; chown -R 2002:2002 $S/d; "
				    "chmod 750 $S/d");
	struct leat_stage_options o = {.size = sizeof(o), .source = w.src, .catalog = w.catalog};
	struct leat_dataset_info info = {.size = sizeof(info)};
	(void)state;
	*w.r = (struct leat_stage_result){.size = sizeof(*w.r)};
	snprintf(w.catalog, sizeof(w.catalog), "%s/names", w.root);
	snprintf(w.named, sizeof(w.named), "set@v1");
	assert_int_equal(leat_dataset_create(&o, w.named, &info, w.r), 0);
	stage(&w);
	assert_int_equal(mode_of(&w, "d"), 0550);
	/* An unchanged folder gets wider rights, too. */
	shell(&w, "chmod 755 $S/d");
	stage(&w);
	assert_int_equal(mode_of(&w, "d"), 0555);
	shell(&w, "chmod 700 $S/d");
	stage(&w);
	assert_int_equal(mode_of(&w, "d"), 0500);
	shell(&w, "setpriv --reuid 2001 --regid 2001 --clear-groups "
		  "sh -ec \"mv $S/d $S/away; mkdir -p $S/d/e; chmod 755 $S/d $S/d/e\"");
	stage(&w);
	shell(&w, "[ \"$(stat -c %u:%a $D $D/a)\" = \"$(printf '2001:555\\n2001:444')\" ]; "
		  "seen=$(setpriv --reuid 2001 --regid 2001 --clear-groups ls -R $D/d 2>$R/no || "
		  ":); "
		  "[ -z \"$seen\" ]; [ \"$(stat -c %u $D/d)\" != 2001 ]");
	end_world(&w);
}

/* ---- which files a mount trusts ---- */

/* Which of the copy's files a mount would serve, after they were reported to mounts: a letter
 * each. */
struct served {
	const struct world *w;
	char names[32];
};

static void serve(void *arg)
{
	struct served *x = arg;
	static const struct uuid cluster = {{7}};
	struct env *below = loop_env(loop_self()), *env;
	struct local_store s;
	struct manifest *m;
	struct staged *st;
	struct vol *v;
	struct detail d = {0};
	char id[MANIFEST_ID_SIZE], dir[300];
	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(x->w->data, '/') - x->w->data),
		 x->w->data);
	snprintf(id, sizeof(id), "%s", strrchr(dir, '/') + 1);
	assert_int_equal(beneath_create(below, &env), 0);
	assert_int_equal(vol_local_create(env, &v), 0);
	assert_int_equal(manifest_load(v, dir, &m, &d), 0);
	assert_int_equal(store_init(&s, env, x->w->to, id), 0);
	assert_int_equal(stamps_load(&s, m->n_files), 0);
	assert_int_equal(inode_index_publish(&s, m, &cluster, 0), 0);
	assert_int_equal(staged_create(below, x->w->to, &cluster, &st), 0);
	x->names[0] = 0;
	for (uint32_t i = 0; i < m->n_files; i++) {
		const struct manifest_file *f = &m->files[i];
		const struct staged_want want = {f->ino, f->ver, f->size, f->rights.uid};
		struct staged_copy *c;
		int fd = staged_open(st, &want, &c);
		if (fd < 0)
			continue;
		strncat(x->names, f->path, sizeof(x->names) - strlen(x->names) - 1);
		close(fd);
		staged_put(c);
	}
	staged_destroy(st);
	store_fini(&s);
	manifest_destroy(m);
	vol_destroy(v);
	beneath_destroy(env);
	loop_stop(loop_self());
}

static void assert_served(const struct world *w, const char *names)
{
	struct served x = {.w = w};
	struct loop_options lo = {.name = "serve"};
	struct env *env;
	struct loop *l;
	assert_int_equal(env_real_create(NULL, &env), 0);
	assert_int_equal(loop_create(env, &lo, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "serve", serve, &x), 0);
	loop_run(l);
	loop_destroy(l);
	env_real_destroy(env);
	assert_string_equal(x.names, names);
}

/* As soon as the file is the user's: writes other bytes, and restores its time. */
static bool change_a(struct world *w)
{
	char path[512];
	struct stat st;
	join(w, "a", path);
	if (stat(path, &st) < 0 || st.st_uid != USER || chmod(path, 0600) < 0)
		return false;
	int fd = open(path, O_WRONLY);
	const struct timespec times[2] = {st.st_atim, st.st_mtim};
	bool done = fd >= 0 && pwrite(fd, "A", 1, 0) == 1 && futimens(fd, times) == 0 &&
		    fchmod(fd, st.st_mode & 07777) == 0;
	if (fd >= 0)
		close(fd);
	return done;
}

static void changer(struct world *w)
{
	_exit(try_for(20000, change_a, w) ? 0 : 1);
}

/* A later store to a mapped page does not change the time. */
static void mapper(struct world *w)
{
	char path[512];
	join(w, "a", path);
	int fd = chmod(path, 0600) == 0 ? open(path, O_RDWR) : -1;
	volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		_exit(1);
	map[0] = 'a';
	if (fchmod(fd, 0640) < 0 || close(fd) < 0)
		_exit(1);
	alarm(60); /* for a test that fails before it ends this process */
	pause();
}

static bool is_mapped(struct world *w)
{
	return mode_of(w, "a") == 0640;
}

static void test_mounts_see_what_changes_before_ready(void **state)
{
	struct world w = make_world("echo a >$S/a; head -c 3000000 /dev/zero >$S/b; echo c >$S/c; "
				    "chown 2001:2001 $S/a $S/b");
	(void)state;
	stage(&w);
	assert_served(&w, "abc");
	/* Now its place is fixed. */
	shell(&w, "rm -rf $T/.leat");
	pid_t pid = as_user(USER, changer, &w);
	stage_here(&w, 2000000);
	ends_well(pid);
	assert_int_equal(w.r->code, LEAT_STAGE_DONE);
	assert_served(&w, "bc");
	/* Its rights change, and a file that differs from the manifest gets none. */
	shell(&w, "chmod 604 $S/a $S/b");
	stage(&w);
	assert_served(&w, "abc");
	shell(&w, "cmp $S/a $D/a");
	end_world(&w);
}

static void test_mounts_believe_nothing_that_is_mapped(void **state)
{
	struct world w = make_world("echo a >$S/a; echo b >$S/b; chown 2001:2001 $S/a");
	(void)state;
	stage(&w);
	pid_t pid = as_user(USER, mapper, &w);
	assert_true(try_for(20000, is_mapped, &w));
	shell(&w, "chmod 604 $S/a");
	stage(&w);
	assert_int_equal(mode_of(&w, "a"), 0404);
	assert_served(&w, "b");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	shell(&w, "chmod 644 $S/a");
	stage(&w);
	assert_served(&w, "ab");
	end_world(&w);
}

/* The bitmap vouches for the file that was verified, not for another of its size and rights. */
static void test_what_goes_on_believes_no_other_file(void **state)
{
	struct world w = make_world("mkdir $S/d; echo hello >$S/d/f; echo g >$S/d/g; "
				    "chown -R 2001:2001 $S");
	(void)state;
	stage(&w);
	shell(&w, "setpriv --reuid 2001 --regid 2001 --clear-groups sh -ec \"chmod u+w $D/d; "
		  "echo HELLO >$D/d/x; touch -r $D/d/f $D/d/x; chmod 444 $D/d/x; "
		  "mv -f $D/d/x $D/d/f; rm -f $D/d/g; chmod u-w $D/d\"");
	stage(&w);
	shell(&w, "cmp $D/d/f $S/d/f; cmp $D/d/g $S/d/g");
	end_world(&w);
}

/* As a user that owns nothing there: finds the copy by its name, and opens files in it. */
static void look_by_name(struct world *w)
{
	struct leat_stage_lease *lease;
	char path[4096], file[4200];
	if (leat_stage_path(w->to, w->src, path, sizeof(path)) != 0)
		_exit(3);
	snprintf(file, sizeof(file), "%s/d/a", path);
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		_exit(4);
	close(fd);
	if (leat_stage_lease(w->to, w->src, &lease) != 0)
		_exit(5);
	leat_stage_release(lease);
}

static void test_the_umask_has_no_say(void **state)
{
	(void)state;
	for (int wide = 0; wide < 2; wide++) {
		struct world w = make_world("mkdir $S/d; echo a >$S/d/a; echo b >$S/b; "
					    "chmod 600 $S/b");
		mode_t before = umask(wide ? 0 : 077);
		stage(&w);
		assert_int_equal(leat_stage_lease_job(w.to, w.src, "job", 0), 0);
		umask(before);
		ends_well(as_user(USER, look_by_name, &w));
		/* A user without the right still has no access. */
		assert_int_equal(mode_of(&w, "b"), 0400);
		shell(&w, "cd $T/.leat; [ $(stat -c %a .) = 755 ]; "
			  "[ -z \"$(find . -type f -perm /022; find . -type d -perm /022)\" ]; "
			  "[ $(stat -c %a */lease) = 644 ]; [ $(stat -c %a */leases) = 755 ]; "
			  "[ $(stat -c %a */READY) = 644 ]");
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goes_on_with_the_rights_of_now),
		cmocka_unit_test(test_what_is_right_stays_as_it_is),
		cmocka_unit_test(test_a_file_of_others_gets_no_rights),
		cmocka_unit_test(test_a_folder_is_exchanged_while_it_comes),
		cmocka_unit_test(test_a_folder_is_removed_while_it_comes),
		cmocka_unit_test(test_a_link_that_is_exchanged),
		cmocka_unit_test(test_what_cannot_be_narrowed_keeps_the_rest_closed),
		cmocka_unit_test(test_no_copies_in_copies),
		cmocka_unit_test(test_members_called_as_an_archive),
		cmocka_unit_test(test_another_folder_at_the_source),
		cmocka_unit_test(test_mounts_see_what_changes_before_ready),
		cmocka_unit_test(test_mounts_believe_nothing_that_is_mapped),
		cmocka_unit_test(test_what_goes_on_believes_no_other_file),
		cmocka_unit_test(test_the_umask_has_no_say),
	};
	if (geteuid() != 0) {
		printf("skipped: it makes what belongs to others, as root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
