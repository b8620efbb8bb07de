/* SPDX-License-Identifier: Apache-2.0 */
/* Listing directories while they change, and large ones; attributes and extended attributes. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>

#include "tests/unit/mds/fixture.h"

#define N_FILES 3000
static uint8_t seen[N_FILES * 2];

struct list_state {
	uint64_t cookie;
	uint32_t n;
	bool eof;
};

static void list_some(struct fx *f, struct ino dir, uint32_t max_bytes, bool plus,
		      struct list_state *l)
{
	struct mds_readdir_req q = {f->cred, dir, l->cookie, max_bytes, plus ? READDIR_PLUS : 0};
	struct mds_readdir_rep p;
	struct wire_r r;

	assert_int_equal(fx_call(f, OP_mds_readdir, &q, &p), 0);
	assert_true(p.entries.len <= (max_bytes < 512 ? 1024 : max_bytes));
	wire_r_init(&r, p.entries.data, p.entries.len);
	while (!wire_r_end(&r)) {
		struct dirent_wire d;
		char name[16];

		wire_get_dirent_wire(&r, &d);
		assert_int_equal(r.status, 0);
		assert_true(d.cookie > l->cookie && d.cookie >= 16);
		assert_true(d.cookie <= INT64_MAX);
		l->cookie = d.cookie;
		l->n++;
		assert_true(S_ISREG(d.attr.mode));
		assert_true(!plus || d.attr.nlink == 1);
		snprintf(name, sizeof(name), "%.*s", (int)d.name.len, (const char *)d.name.data);
		seen[atoi(name + 1)]++;
	}
	l->eof = p.eof != 0;
	assert_true(l->eof || p.entries.len > 0);
}

static void make(struct fx *f, struct ino dir, uint32_t i)
{
	struct mds_mknod_req q = {f->cred, dir, {NULL, 0}, S_IFREG | 0600, 0};
	char name[16];

	snprintf(name, sizeof(name), "f%u", i);
	q.name = bytes_str(name);
	assert_int_equal(fx_call(f, OP_mds_mknod, &q, NULL), 0);
}

static void drop(struct fx *f, struct ino dir, uint32_t i)
{
	char name[16];

	snprintf(name, sizeof(name), "f%u", i);
	assert_int_equal(fx_unlink(f, dir, name), 0);
}

/* An entry that exists throughout is listed exactly once, whatever is made and removed
 * meanwhile. */
static void change_body(struct fx *f)
{
	struct list_state l = {0};
	struct ino dir;
	uint32_t turn = 0;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	for (uint32_t i = 0; i < N_FILES; i++)
		make(f, dir, i);
	memset(seen, 0, sizeof(seen));
	while (!l.eof) {
		list_some(f, dir, 8000, turn % 2 == 0, &l);
		for (uint32_t k = 0; k < 10; k++) { /* remove every third file, make new ones */
			uint32_t i = (turn * 10 + k) * 3;

			if (i < N_FILES)
				drop(f, dir, i);
			make(f, dir, N_FILES + turn * 10 + k);
		}
		turn++;
	}
	for (uint32_t i = 0; i < N_FILES; i++)
		assert_true(i % 3 == 0 ? seen[i] <= 1 : seen[i] == 1);
	for (uint32_t i = N_FILES; i < 2 * N_FILES; i++)
		assert_true(seen[i] <= 1);
	l.eof = false;
	list_some(f, dir, 8000, false, &l);
	assert_true(l.eof); /* after the end there are no entries */
}

static void empty_body(struct fx *f)
{
	struct list_state l = {0};
	struct mds_readdir_req q = {.ino = LEAT_ROOT_INO, .cookie = UINT64_MAX, .max_bytes = 4096};
	struct mds_readdir_rep p;

	list_some(f, LEAT_ROOT_INO, 4096, true, &l);
	assert_true(l.eof && l.n == 0);
	assert_int_equal(fx_call(f, OP_mds_readdir, &q, &p), 0);
	assert_int_equal(p.eof, 1);
	make(f, LEAT_ROOT_INO, 1);
	l = (struct list_state){0};
	list_some(f, LEAT_ROOT_INO, 1, true, &l); /* at least one entry */
	assert_int_equal(l.n, 1);
}

/* The cache is much smaller than the entries: they are loaded again and again. */
static void small_cache_body(struct fx *f)
{
	struct list_state l = {0};

	f->m->store.opt.cache_bytes = 64 << 10;
	for (uint32_t i = 0; i < 1000; i++)
		make(f, LEAT_ROOT_INO, i);
	memset(seen, 0, sizeof(seen));
	while (!l.eof)
		list_some(f, LEAT_ROOT_INO, 20000, true, &l);
	assert_int_equal(l.n, 1000);
	assert_true(f->m->store.mem <= (64 << 10));
	assert_true(metric_get(&f->m->metrics.evictions) > 0);
	for (uint32_t i = 0; i < 1000; i++)
		drop(f, LEAT_ROOT_INO, i);
	l = (struct list_state){0};
	list_some(f, LEAT_ROOT_INO, 20000, false, &l);
	assert_true(l.eof && l.n == 0);
}

static uint32_t n_cached_names(struct fx *f)
{
	return (uint32_t)f->m->store.dentries.n;
}

/* The cache evicts removed names and names that were not found, whatever its size, and keeps
 * existing ones. It keeps only absent_max absent names. */
static void absent_body(struct fx *f)
{
	struct ino dir;
	struct attr a;
	char name[32];

	f->m->store.absent_max = 50;
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "kept", &dir), 0);
	for (uint32_t i = 0; i < 100; i++)
		make(f, dir, i);
	for (uint32_t i = 0; i < 1000; i++) {
		make(f, LEAT_ROOT_INO, i);
		drop(f, LEAT_ROOT_INO, i);
		snprintf(name, sizeof(name), "none%u", i);
		assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, name, &a), -LE_NOENT);
	}
	assert_true(n_cached_names(f) >= 101 && n_cached_names(f) <= 101 + 50);
	assert_true(f->m->store.inodes.n < 150);
	for (uint32_t i = 0; i < 100; i++)
		drop(f, dir, i);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "kept"), 0);
	assert_true(n_cached_names(f) <= 50 && f->m->store.n_absent <= 50);
}

static uint64_t misses(const struct fx *f)
{
	return metric_get(&f->m->metrics.cache_misses);
}

/* The server does not query the store for absent names of a new directory, until some of its
 * entries were evicted. */
static void new_dir_body(struct fx *f)
{
	struct list_state l = {0};
	struct ino dir;
	uint64_t before;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "new", &dir), 0);
	before = misses(f);
	for (uint32_t i = 0; i < 100; i++)
		make(f, dir, i);
	assert_int_equal(fx_lookup(f, dir, "none", &(struct attr){0}), -LE_NOENT);
	assert_int_equal(misses(f), before);
	f->m->store.opt.cache_bytes = 64 << 10;
	for (uint32_t i = 100; i < 1000; i++)
		make(f, dir, i);
	assert_true(misses(f) > before);
	for (uint32_t i = 0; i < 1000; i++)
		drop(f, dir, i);
	list_some(f, dir, 20000, false, &l);
	assert_true(l.eof && l.n == 0);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "new"), 0);
}

static int set(struct fx *f, struct ino ino, const char *name, struct bytes value, uint32_t flags)
{
	struct mds_setxattr_req q = {f->cred, ino, bytes_str(name), value, flags};

	return fx_call(f, OP_mds_setxattr, &q, NULL);
}

static int get(struct fx *f, struct ino ino, const char *name, struct bytes *ret_value)
{
	struct mds_getxattr_req q = {f->cred, ino, bytes_str(name)};
	struct mds_getxattr_rep p;
	int rc = fx_call(f, OP_mds_getxattr, &q, &p);

	*ret_value = p.value;
	return rc;
}

static void xattr_body(struct fx *f)
{
	struct mds_listxattr_req lq = {.ino = LEAT_ROOT_INO};
	struct mds_removexattr_req rq = {.ino = LEAT_ROOT_INO, .name = bytes_str("user.a")};
	struct mds_listxattr_rep lp;
	char *large = calloc(1, LEAT_XATTR_VALUE_MAX + 1);
	struct bytes v;
	struct attr a;

	assert_non_null(large);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", O_RDONLY, &a), 0);
	assert_int_equal(get(f, a.ino, "user.a", &v), -LE_NODATA);
	assert_int_equal(set(f, LEAT_ROOT_INO, "user.a", bytes_str("one"), XATTR_REPLACE),
			 -LE_NODATA);
	assert_int_equal(set(f, LEAT_ROOT_INO, "user.a", bytes_str("one"), XATTR_CREATE), 0);
	assert_int_equal(set(f, LEAT_ROOT_INO, "user.a", bytes_str("one"), XATTR_CREATE),
			 -LE_EXIST);
	assert_int_equal(set(f, LEAT_ROOT_INO, "user.a", bytes_str("two"), 0), 0);
	assert_int_equal(get(f, LEAT_ROOT_INO, "user.a", &v), 0);
	assert_true(bytes_equal(v, bytes_str("two")));
	assert_int_equal(set(f, a.ino, "user.big", bytes_of(large, LEAT_XATTR_VALUE_MAX), 0), 0);
	assert_int_equal(set(f, a.ino, "user.big", bytes_of(large, LEAT_XATTR_VALUE_MAX + 1), 0),
			 -LE_2BIG);
	assert_int_equal(get(f, a.ino, "user.big", &v), 0);
	assert_int_equal(v.len, LEAT_XATTR_VALUE_MAX);
	assert_int_equal(set(f, a.ino, "system.posix_acl_access", bytes_str("x"), 0), -LE_INVAL);
	assert_int_equal(set(f, LEAT_ROOT_INO, "trusted.t", bytes_str(""), 0), 0);
	assert_int_equal(fx_call(f, OP_mds_listxattr, &lq, &lp), 0);
	assert_true(bytes_equal(lp.names, bytes_of("trusted.t\0user.a\0", 17)));
	f->cred.uid = 1000;
	lq.cred = f->cred;
	assert_int_equal(fx_call(f, OP_mds_listxattr, &lq, &lp), 0);
	assert_true(bytes_equal(lp.names, bytes_of("user.a\0", 7)));
	assert_int_equal(get(f, LEAT_ROOT_INO, "trusted.t", &v), -LE_NODATA);
	assert_int_equal(set(f, LEAT_ROOT_INO, "user.b", bytes_str("x"), 0), -LE_ACCES);
	f->cred.uid = 0;
	assert_int_equal(fx_call(f, OP_mds_removexattr, &rq, NULL), 0);
	assert_int_equal(fx_call(f, OP_mds_removexattr, &rq, NULL), -LE_NODATA);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "f"),
			 0); /* removes its attributes too (fx_check) */
	free(large);
}

static void link_body(struct fx *f)
{
	struct mds_symlink_req q = {f->cred, LEAT_ROOT_INO, bytes_str("l"),
				    bytes_str("to/somewhere")};
	struct mds_symlink_rep p;
	struct mds_readlink_req rq;
	struct mds_readlink_rep rp;

	assert_int_equal(fx_call(f, OP_mds_symlink, &q, &p), 0);
	assert_int_equal(p.attr.size, 12);
	rq.ino = p.attr.ino;
	assert_int_equal(fx_call(f, OP_mds_readlink, &rq, &rp), 0);
	assert_true(bytes_equal(rp.target, bytes_str("to/somewhere")));
	rq.ino = LEAT_ROOT_INO;
	assert_int_equal(fx_call(f, OP_mds_readlink, &rq, &rp), -LE_INVAL);
}

static void run_and_check(void (*body)(struct fx *f))
{
	struct fx *f = fx_create(1);

	fx_run(f, body);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

#define CHECKED(name, body)                                                                        \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		run_and_check(body);                                                               \
	}
CHECKED(test_change, change_body)
CHECKED(test_empty, empty_body)
CHECKED(test_small_cache, small_cache_body)
CHECKED(test_absent, absent_body)
CHECKED(test_new_dir, new_dir_body)
CHECKED(test_xattr, xattr_body)
CHECKED(test_link, link_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_change),      cmocka_unit_test(test_empty),
		cmocka_unit_test(test_small_cache), cmocka_unit_test(test_xattr),
		cmocka_unit_test(test_link),        cmocka_unit_test(test_new_dir),
		cmocka_unit_test(test_absent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
