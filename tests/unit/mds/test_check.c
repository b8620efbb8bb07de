/* SPDX-License-Identifier: Apache-2.0 */
/* mds_check finds each kind of planted damage, repairs it, and then finds none. Records survive
 * encoding and decoding. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/mds/fixture.h"

static struct ino dir_ino, file_ino;

static void tree(struct fx *f)
{
	struct mds_setxattr_req q = {.name = bytes_str("user.x"), .value = bytes_str("v")};
	struct attr a;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "dir", &dir_ino), 0);
	assert_int_equal(fx_mkdir(f, dir_ino, "sub", NULL), 0);
	assert_int_equal(fx_create_file(f, dir_ino, "file", O_RDONLY, &a), 0);
	file_ino = a.ino;
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_setxattr, &q, NULL), 0);
}

static void entry_key(struct fx *f, struct ino dir, const char *name, struct key *ret_k)
{
	*ret_k = key_dentry(dir, dentry_cookie(&f->m->store, bytes_str(name)));
}

static void write_inode(struct fx *f, struct ino ino, void (*change)(struct inode_rec *rec))
{
	struct store *s = &f->m->store;
	struct inode_rec *rec;
	struct inode *i;

	while (inode_get(s, ino, VIEW_NEWEST, &i, NULL) == -LE_MISS)
		assert_int_equal(store_load(s), 0);
	assert_int_equal(txn_begin(s), 0);
	rec = inode_edit(s, i);
	change(rec);
	assert_int_equal(store_wait(s, txn_end(s)), 0);
}

static void damage(struct fx *f, struct key k, bool remove, const void *value, size_t len)
{
	struct store *s = &f->m->store;

	assert_int_equal(txn_begin(s), 0);
	if (remove)
		txn_delete(s, k);
	else
		txn_put(s, k, value, len);
	assert_int_equal(store_wait(s, txn_end(s)), 0);
}

static void nlink_9(struct inode_rec *rec)
{
	rec->attr.nlink = 9;
}

static void entries_9(struct inode_rec *rec)
{
	rec->entries = 9;
}

static void parent_9(struct inode_rec *rec)
{
	rec->parent.v = 9;
}

static void sums_9(struct inode_rec *rec)
{
	rec->xattr_names = 0;
	rec->xattr_bytes = 9;
}

static void dangling(struct fx *f)
{
	damage(f, key_inode(file_ino), true, NULL, 0);
}

static void lost_file(struct fx *f)
{
	struct key k;

	entry_key(f, dir_ino, "file", &k);
	damage(f, k, true, NULL, 0);
}

static void lost_dir(struct fx *f)
{
	struct key k;

	entry_key(f, LEAT_ROOT_INO, "dir", &k);
	damage(f, k, true, NULL, 0);
}

static void links(struct fx *f)
{
	write_inode(f, file_ino, nlink_9);
	write_inode(f, dir_ino, nlink_9);
}

static void entries(struct fx *f)
{
	write_inode(f, dir_ino, entries_9);
}

static void parent(struct fx *f)
{
	write_inode(f, dir_ino, parent_9);
}

static void xattr_sums(struct fx *f)
{
	write_inode(f, file_ino, sums_9);
}

static void xattr_lost(struct fx *f)
{
	damage(f, key_xattr(file_ino, bytes_str("user.x")), true, NULL, 0);
}

static void false_orphan(struct fx *f)
{
	damage(f, key_of('O', file_ino.v), false, NULL, 0);
}

static void record(struct fx *f)
{
	damage(f, key_inode(file_ino), false, "rubbish", 7);
}

static const struct {
	const char *name;
	void (*plant)(struct fx *f);
	bool mended; /* repaired completely */
} cases[] = {
	{"dangling entry", dangling, false}, /* its attribute stays */
	{"file without a name", lost_file, true},
	{"directory without a name", lost_dir, true},
	{"link counts", links, true},
	{"entry count", entries, true},
	{"parent", parent, true},
	{"attributes' lengths", xattr_sums, true},
	{"attribute lost", xattr_lost, true},
	{"orphan with a name", false_orphan, false},
	{"damaged record", record, false},
};

static void test_damage(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fx *f = fx_create(1);
		uint64_t left;

		fx_run(f, tree);
		fx_run(f, cases[i].plant);
		if (fx_check(f, false) == 0)
			fail_msg("%s: not found", cases[i].name);
		assert_true(fx_check(f, true) > 0);
		left = fx_check(f, false);
		if (cases[i].mended && left > 0)
			fail_msg("%s: %d problems left", cases[i].name, (int)left);
		fx_destroy(f);
	}
}

/* A store of an earlier format is refused. */
static void of_before(struct fx *f)
{
	f->m->store.cluster.format = STORE_FORMAT - 1;
	assert_int_equal(txn_begin(&f->m->store), 0);
	txn_cluster(&f->m->store);
	assert_int_equal(store_wait(&f->m->store, txn_end(&f->m->store)), 0);
}

/* Checks the store; said: what that prints on stderr. */
static int check_status_said(struct fx *f, char *said, size_t size)
{
	FILE *out = tmpfile();
	int before = dup(2), rc;

	assert_true(out != NULL && before >= 0 && dup2(fileno(out), 2) == 2);
	rc = fx_check_status(f);
	dup2(before, 2);
	close(before);
	rewind(out);
	said[fread(said, 1, size - 1, out)] = '\0';
	fclose(out);
	return rc;
}

static void test_earlier_format(void **state)
{
	struct fx *f = fx_create(1);
	char said[4096], format[64];

	(void)state;
	fx_run(f, tree);
	fx_run(f, of_before);
	assert_int_equal(check_status_said(f, said, sizeof(said)), -LE_STORE_FORMAT);
	/* The message names the format, and what to do. */
	snprintf(format, sizeof(format), "format %u, this one knows %u", STORE_FORMAT - 1,
		 STORE_FORMAT);
	assert_non_null(strstr(said, format));
	assert_non_null(strstr(said, "leat-mds format"));
	fx_destroy(f);
}

static void test_sound(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, tree);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* Every prefix of a record is decoded or refused, and never read beyond its end. */
static void test_records(void **state)
{
	struct inode_rec in = {.attr = {.mode = S_IFLNK | 0777,
					.size = 4,
					.btime_ns = -5,
					.layout = {.table = 3, .width = 2, .gen = 7}},
			       .append_end = 99,
			       .parent = {12},
			       .symlink = bytes_str("abcd")};
	struct inode_rec out;
	uint8_t buf[RECORD_MAX];
	size_t len = inode_encode(&in, buf, sizeof(buf));
	struct wire_r r;

	(void)state;
	wire_r_init(&r, buf, len);
	wire_get_inode_rec(&r, &out);
	assert_int_equal(r.status, 0);
	assert_int_equal(out.attr.layout.gen, 7);
	assert_int_equal(out.attr.btime_ns, -5);
	assert_int_equal(out.append_end, 99);
	assert_true(bytes_equal(out.symlink, in.symlink));
	for (size_t n = 0; n < len; n++) {
		uint8_t *cut = test_malloc(n + 1);

		memcpy(cut, buf, n);
		wire_r_init(&r, cut, n);
		wire_get_inode_rec(&r, &out);
		assert_true(r.status <= 0);
		test_free(cut);
	}
}

static void test_keys(void **state)
{
	struct key a = key_after(key_of('D', 0xff)), b = key_of('D', 0x100);
	struct key last = key_after(key_of('D', UINT64_MAX));

	(void)state;
	assert_true(a.len <= b.len && memcmp(a.b, b.b, a.len) == 0); /* no key is between them */
	assert_int_equal(last.len, 1);
	assert_int_equal(last.b[0], 'E');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound),
		cmocka_unit_test(test_earlier_format),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
