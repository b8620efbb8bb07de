/* SPDX-License-Identifier: Apache-2.0 */
/* Names, links and renames: a table of steps, each with the status it must have. */
#include <fcntl.h>
#include <linux/fs.h>

#include "tests/unit/mds/fixture.h"

enum what {
	MKDIR,
	CREATE,
	UNLINK,
	RMDIR,
	RENAME,
	RENAME_NEW,
	EXCHANGE,
	LINK,
	LOOKUP,
	NLINK
};
struct step {
	enum what what;
	const char *path, *path2; /* at most two components */
	int want;                 /* status, or nlink */
};

static int parent_of(struct fx *f, const char *path, struct ino *ret_dir, const char **ret_name)
{
	const char *slash = strchr(path, '/');
	char dir[256];
	struct attr a;

	*ret_dir = LEAT_ROOT_INO;
	*ret_name = path;
	while (slash != NULL) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - *ret_name), *ret_name);
		TRY(fx_lookup(f, *ret_dir, dir, &a));
		*ret_dir = a.ino;
		*ret_name = slash + 1;
		slash = strchr(*ret_name, '/');
	}
	return 0;
}

static int two(struct fx *f, const struct step *s, struct ino dir, const char *name)
{
	struct ino dir2;
	const char *name2;
	struct attr a;

	TRY(parent_of(f, s->path2, &dir2, &name2));
	if (s->what != LINK)
		return fx_rename(f, dir, name, dir2, name2,
				 s->what == RENAME_NEW ? RENAME_NOREPLACE
				 : s->what == EXCHANGE ? RENAME_EXCHANGE
						       : 0);
	TRY(fx_lookup(f, dir, name, &a));
	return fx_link(f, a.ino, dir2, name2);
}

static int run_step(struct fx *f, const struct step *s)
{
	const char *name;
	struct attr a;
	struct ino dir;
	int rc = parent_of(f, s->path, &dir, &name);

	if (rc < 0)
		return rc;
	switch (s->what) {
	case MKDIR:
		return fx_mkdir(f, dir, name, NULL);
	case CREATE:
		TRY(fx_create_file(f, dir, name, O_EXCL | O_WRONLY, &a));
		return fx_close(f, a.ino, O_WRONLY, 0);
	case UNLINK:
		return fx_unlink(f, dir, name);
	case RMDIR:
		return fx_rmdir(f, dir, name);
	case RENAME:
	case RENAME_NEW:
	case EXCHANGE:
	case LINK:
		return two(f, s, dir, name);
	case LOOKUP:
		return fx_lookup(f, dir, name, &a);
	case NLINK:
		TRY(fx_lookup(f, dir, name, &a));
		return (int)a.nlink;
	}
	return -LE_INVAL;
}

static const struct step names[] = {
	{LOOKUP, "a", NULL, -LE_NOENT},
	{CREATE, "a", NULL, 0},
	{CREATE, "a", NULL, -LE_EXIST},
	{LOOKUP, "a", NULL, 0},
	{MKDIR, "a", NULL, -LE_EXIST},
	{MKDIR, "d", NULL, 0},
	{NLINK, ".", NULL, 3},
	{CREATE, "d/x", NULL, 0},
	{CREATE, "a/x", NULL, -LE_NOTDIR},
	{RMDIR, "d", NULL, -LE_NOTEMPTY},
	{RMDIR, "a", NULL, -LE_NOTDIR},
	{UNLINK, "d", NULL, -LE_ISDIR},
	{LINK, "d/x", "y", 0},
	{NLINK, "y", NULL, 2},
	{LINK, "d", "e", -LE_PERM},
	{LINK, "y", "d/x", -LE_EXIST},
	{UNLINK, "d/x", NULL, 0},
	{NLINK, "y", NULL, 1},
	{RMDIR, "d", NULL, 0},
	{NLINK, ".", NULL, 2},
	{UNLINK, "y", NULL, 0},
	{UNLINK, "y", NULL, -LE_NOENT},
	{MKDIR, ".", NULL, -LE_EXIST},
	{RMDIR, ".", NULL, -LE_INVAL},
};

static const struct step renames[] = {
	{MKDIR, "p", NULL, 0},
	{MKDIR, "q", NULL, 0},
	{MKDIR, "p/s", NULL, 0},
	{CREATE, "p/f", NULL, 0},
	{CREATE, "q/g", NULL, 0},
	{RENAME, "p/none", "q/h", -LE_NOENT},
	{RENAME, "p/f", "p/f", 0}, /* itself */
	{RENAME_NEW, "p/f", "q/g", -LE_EXIST},
	{RENAME_NEW, "p/f", "q/h", 0},
	{LOOKUP, "p/f", NULL, -LE_NOENT},
	{RENAME, "q/h", "q/g", 0}, /* over a file */
	{LOOKUP, "q/h", NULL, -LE_NOENT},
	{RENAME, "q/g", "p/s", -LE_ISDIR},
	{RENAME, "p/s", "q/g", -LE_NOTDIR},
	{RENAME, "p", "p/s/p", -LE_INVAL}, /* below itself */
	{RENAME, "p", "p/p", -LE_INVAL},
	{NLINK, "p", NULL, 3},
	{NLINK, "q", NULL, 2},
	{RENAME, "p/s", "q/t", 0}, /* a directory elsewhere */
	{NLINK, "p", NULL, 2},
	{NLINK, "q", NULL, 3},
	{RENAME, "p", "q/t", 0}, /* over an empty directory */
	{NLINK, "q", NULL, 3},
	{NLINK, ".", NULL, 3},
	{MKDIR, "r", NULL, 0},
	{RENAME, "r", "q", -LE_NOTEMPTY},
	{LINK, "q/g", "q/g2", 0},
	{RENAME, "q/g", "q/g2", 0}, /* two names of one file: no effect */
	{LOOKUP, "q/g", NULL, 0},
	{NLINK, "q/g2", NULL, 2},
	{RENAME_NEW, "q/g", "q/g2", -LE_EXIST},
};

static const struct step exchanges[] = {
	{MKDIR, "p", NULL, 0},
	{MKDIR, "q", NULL, 0},
	{MKDIR, "p/d", NULL, 0},
	{CREATE, "p/d/in", NULL, 0},
	{CREATE, "q/f", NULL, 0},
	{EXCHANGE, "q/f", "q/none", -LE_NOENT},
	{EXCHANGE, "q/none", "q/f", -LE_NOENT},
	{EXCHANGE, "p/d", "q/f", 0}, /* a directory that is not empty, and a file */
	{LOOKUP, "q/f/in", NULL, 0},
	{LOOKUP, "p/d/in", NULL, -LE_NOTDIR},
	{NLINK, "p", NULL, 2},
	{NLINK, "q", NULL, 3},
	{NLINK, "p/d", NULL, 1},
	{EXCHANGE, "q", "q/f/in", -LE_INVAL}, /* below itself, in both directions */
	{EXCHANGE, "q/f/in", "q", -LE_INVAL},
	{CREATE, "q/g", NULL, 0},
	{EXCHANGE, "q/f", "q/g", 0}, /* in one directory */
	{LOOKUP, "q/g/in", NULL, 0},
	{NLINK, "q", NULL, 3},
	{EXCHANGE, "p", "q/g", 0}, /* two directories */
	{NLINK, ".", NULL, 4},
	{NLINK, "q", NULL, 3},
	{LOOKUP, "p/in", NULL, 0},
	{LOOKUP, "q/g/d", NULL, 0},
	{LINK, "q/g/d", "same", 0},
	{EXCHANGE, "same", "q/g/d", 0},
	{NLINK, "same", NULL, 2},
	{RMDIR, "q", NULL, -LE_NOTEMPTY},
	{UNLINK, "p/in", NULL, 0},
	{RMDIR, "p", NULL, 0},
};

static void run_steps(struct fx *f, const struct step *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = run_step(f, &s[i]);

		if (rc != s[i].want)
			fail_msg("step %zu (%s): %d %s, want %d", i, s[i].path, rc, status_name(rc),
				 s[i].want);
	}
}

static void names_body(struct fx *f)
{
	run_steps(f, names, ARRAY_SIZE(names));
}

static void renames_body(struct fx *f)
{
	run_steps(f, renames, ARRAY_SIZE(renames));
}

static void exchanges_body(struct fx *f)
{
	run_steps(f, exchanges, ARRAY_SIZE(exchanges));
}

static void assert_whiteout(struct fx *f, struct ino dir, const char *name)
{
	struct attr a;

	assert_int_equal(fx_lookup(f, dir, name, &a), 0);
	assert_int_equal(a.mode, S_IFCHR);
	assert_int_equal(a.rdev, 0);
	assert_int_equal(a.nlink, 1);
}

static void assert_links(struct fx *f, struct ino dir, uint32_t nlink)
{
	struct attr a;

	assert_int_equal(fx_getattr(f, dir, &a), 0);
	assert_int_equal(a.nlink, nlink);
}

/* Asserts that the name is a whiteout now. */
static void whiteouts_body(struct fx *f)
{
	struct ino p, q, sub;
	struct attr a, b;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "p", &p), 0);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "q", &q), 0);
	assert_int_equal(fx_create_file(f, p, "f", O_RDONLY, &a), 0);
	assert_int_equal(fx_rename(f, p, "f", q, "g", RENAME_WHITEOUT), 0);
	assert_whiteout(f, p, "f");
	assert_int_equal(fx_lookup(f, q, "g", &b), 0);
	assert_int_equal(a.ino.v, b.ino.v);
	/* A whiteout is a name like any other: as an obstacle, and as the replaced and the renamed
	 * one. */
	assert_int_equal(fx_rename(f, q, "g", p, "f", RENAME_WHITEOUT | RENAME_NOREPLACE),
			 -LE_EXIST);
	assert_int_equal(fx_rename(f, q, "g", q, "h", RENAME_WHITEOUT | RENAME_NOREPLACE), 0);
	assert_whiteout(f, q, "g");
	assert_int_equal(fx_rename(f, q, "h", p, "f", RENAME_WHITEOUT), 0);
	assert_whiteout(f, q, "h");
	assert_int_equal(fx_rename(f, q, "h", q, "g", RENAME_WHITEOUT), 0);
	assert_whiteout(f, q, "h");
	assert_whiteout(f, q, "g");
	assert_int_equal(fx_rename(f, q, "g", p, "f", RENAME_WHITEOUT | RENAME_EXCHANGE),
			 -LE_INVAL);
	assert_int_equal(fx_rename(f, p, "none", p, "x", RENAME_WHITEOUT), -LE_NOENT);
	assert_int_equal(fx_lookup(f, p, "none", NULL), -LE_NOENT);
	/* Two names of one file: no effect. */
	assert_int_equal(fx_link(f, a.ino, p, "f2"), 0);
	assert_int_equal(fx_rename(f, p, "f", p, "f2", RENAME_WHITEOUT), 0);
	assert_int_equal(fx_lookup(f, p, "f", &b), 0);
	assert_int_equal(a.ino.v, b.ino.v);
	/* Renaming a directory takes its link with it. */
	assert_int_equal(fx_mkdir(f, p, "s", &sub), 0);
	assert_int_equal(fx_create_file(f, sub, "in", O_RDONLY, NULL), 0);
	assert_links(f, p, 3);
	assert_int_equal(fx_rename(f, p, "s", q, "s", RENAME_WHITEOUT), 0);
	assert_whiteout(f, p, "s");
	assert_links(f, p, 2);
	assert_links(f, q, 3);
	assert_int_equal(fx_rename(f, q, "s", q, "t", RENAME_WHITEOUT), 0);
	assert_whiteout(f, q, "s");
	assert_links(f, q, 3);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "p"), -LE_NOTEMPTY);
	for (const char *name = "f\0f2\0s\0"; *name != 0; name += strlen(name) + 1)
		assert_int_equal(fx_unlink(f, p, name), 0);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "p"), 0);
}

static struct ino whiteout;

static struct mds_rename_req whiteout_req(struct cred cred)
{
	return (struct mds_rename_req){.cred = cred,
				       .parent = LEAT_ROOT_INO,
				       .name = bytes_str("a"),
				       .new_parent = LEAT_ROOT_INO,
				       .new_name = bytes_str("b"),
				       .flags = RENAME_WHITEOUT};
}

/* Like mknod of a device: only for root, or if the client's kernel has checked the right. */
static void whiteout_once_body(struct fx *f)
{
	struct mds_rename_req in = whiteout_req((struct cred){.uid = 7, .gid = 7});
	struct mds_rename_rep out;
	struct mds_setattr_req all = {.cred = f->cred,
				      .ino = LEAT_ROOT_INO,
				      .mask = SET_MODE,
				      .attr = {.mode = 0777}};
	struct attr a;

	assert_int_equal(fx_call(f, OP_mds_setattr, &all, NULL), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "a", O_RDONLY, NULL), 0);
	assert_int_equal(fx_call_as(f, f->session, 3, 1, OP_mds_rename, &in, &out), -LE_PERM);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "b", NULL), -LE_NOENT);
	in.cred.flags |= CRED_CHECKED;
	assert_int_equal(fx_call_as(f, f->session, 3, 2, OP_mds_rename, &in, &out), 0);
	whiteout = out.whiteout;
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "a", &a), 0);
	assert_int_equal(a.ino.v, whiteout.v);
	assert_int_equal(a.uid, 7);
	assert_int_equal(fx_call_as(f, f->session, 3, 2, OP_mds_rename, &in, &out), 0);
	assert_int_equal(out.whiteout.v, whiteout.v);
}

static void whiteout_again_body(struct fx *f)
{
	struct mds_rename_req in =
		whiteout_req((struct cred){.uid = 7, .gid = 7, .flags = CRED_CHECKED});
	struct mds_rename_rep out;
	struct attr a;

	assert_int_equal(fx_call_as(f, f->session, 3, 2, OP_mds_rename, &in, &out), 0);
	assert_int_equal(out.whiteout.v, whiteout.v);
	assert_whiteout(f, LEAT_ROOT_INO, "a");
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "b", &a), 0);
	assert_true(S_ISREG(a.mode));
}

/* All names of a directory get the same hash: the collision chain is the directory. */
static void collisions_body(struct fx *f)
{
	struct store *s = &f->m->store;
	struct ino dir;
	uint64_t mem;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "c", &dir), 0);
	s->hash_mask = 0;
	for (char c = 'a'; c < 'a' + 16; c++)
		assert_int_equal(fx_create_file(f, dir, (char[]){c, 0}, O_RDONLY, NULL), 0);
	assert_int_equal(fx_create_file(f, dir, "q", O_RDONLY, NULL), -LE_NOSPC);
	/* remove from the middle, so that tombstones stay, and insert again */
	assert_int_equal(fx_unlink(f, dir, "c"), 0);
	assert_int_equal(fx_lookup(f, dir, "c", NULL), -LE_NOENT);
	assert_int_equal(fx_lookup(f, dir, "p", NULL), 0);
	mem = s->mem;
	assert_int_equal(
		fx_create_file(f, dir, "a rather long name that does not fit where c was", 0, NULL),
		0);
	assert_true(s->mem >= mem + sizeof(struct inode) + LEAT_NAME_MAX);
	assert_int_equal(fx_rename(f, dir, "a", dir, "p", 0), 0);
	assert_int_equal(fx_rename(f, dir, "b", dir, "z", RENAME_WHITEOUT), 0);
	assert_whiteout(f, dir, "b");
	assert_int_equal(fx_unlink(f, dir, "b"), 0);
	for (char c = 'd'; c < 'a' + 16; c++)
		assert_int_equal(fx_unlink(f, dir, (char[]){c, 0}), 0);
	assert_int_equal(fx_unlink(f, dir, "z"), 0);
	assert_int_equal(fx_unlink(f, dir, "a rather long name that does not fit where c was"), 0);
	s->hash_mask = UINT64_MAX;
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "c"), 0);
}

static void run_and_check(void (*body)(struct fx *f))
{
	struct fx *f = fx_create(1);

	fx_run(f, body);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* A session that still has it open finds no names, and makes none. */
static void removed_dir_body(struct fx *f)
{
	struct mds_readdir_req list = {.cred = f->cred, .max_bytes = 4096};
	struct mds_readdir_rep listed;
	struct attr a;
	struct ino dir;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "x", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 0), 0);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "d"), 0);
	list.ino = dir;
	assert_int_equal(fx_lookup(f, dir, "x", NULL), -LE_NOENT);
	assert_int_equal(fx_create_file(f, dir, "x", O_WRONLY, NULL), -LE_NOENT);
	assert_int_equal(fx_mkdir(f, dir, "x", NULL), -LE_NOENT);
	assert_int_equal(fx_unlink(f, dir, "x"), -LE_NOENT);
	assert_int_equal(fx_link(f, a.ino, dir, "x"), -LE_NOENT);
	assert_int_equal(fx_rename(f, LEAT_ROOT_INO, "x", dir, "x", 0), -LE_NOENT);
	assert_int_equal(fx_rename(f, dir, "x", LEAT_ROOT_INO, "y", 0), -LE_NOENT);
	assert_int_equal(fx_call(f, OP_mds_readdir, &list, &listed), -LE_NOENT);
	assert_int_equal(fx_getattr(f, dir, &a), -LE_STALE);
}

static void test_names(void **state)
{
	(void)state;
	run_and_check(names_body);
}

static void test_renames(void **state)
{
	(void)state;
	run_and_check(renames_body);
}

static void test_exchanges(void **state)
{
	(void)state;
	run_and_check(exchanges_body);
}

static void test_whiteouts(void **state)
{
	(void)state;
	run_and_check(whiteouts_body);
}

static void test_a_whiteout_is_made_once(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, whiteout_once_body);
	fx_crash(f);
	fx_run(f, whiteout_again_body);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

static void test_collisions(void **state)
{
	(void)state;
	run_and_check(collisions_body);
}

/* The cache does not record inode numbers above the last used one as absent. */
static void numbers_to_come_body(struct fx *f)
{
	enum { N = 3000 };
	struct attr a, b;
	char name[16];

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "first", O_RDONLY, &a), 0);
	for (uint64_t i = 1; i <= N; i++)
		assert_int_equal(fx_getattr(f, (struct ino){a.ino.v + i}, &b), -LE_STALE);
	for (uint64_t i = 1; i <= N; i++) {
		snprintf(name, sizeof(name), "f%u", (unsigned)i);
		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, name, O_RDONLY, &b), 0);
	}
	for (uint64_t i = 1; i <= N; i++)
		assert_int_equal(fx_getattr(f, (struct ino){a.ino.v + i}, &b), 0);
}

static void test_numbers_to_come(void **state)
{
	(void)state;
	run_and_check(numbers_to_come_body);
}

static void test_removed_directory(void **state)
{
	(void)state;
	run_and_check(removed_dir_body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_renames),
		cmocka_unit_test(test_exchanges),
		cmocka_unit_test(test_whiteouts),
		cmocka_unit_test(test_a_whiteout_is_made_once),
		cmocka_unit_test(test_collisions),
		cmocka_unit_test(test_numbers_to_come),
		cmocka_unit_test(test_removed_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
