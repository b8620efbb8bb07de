/* SPDX-License-Identifier: Apache-2.0 */
/* The computed attributes "leat.*". */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "common/proto/mds_proto.h"
#include "fuse/ops/virtual_xattr.h"

static struct kernel_reply r;

static int get(const char *name, uint32_t size)
{
	struct fuse_getxattr_in in = {.size = size};
	int err = kernel_call(&rig.k, FUSE_GETXATTR, 1, &r, ARG(in), NAME(name));

	r.data[r.len] = '\0';
	return err;
}

static int set(const char *name, const char *value)
{
	struct fuse_setxattr_in in = {.size = (uint32_t)strlen(value)};
	struct kernel_part parts[] = {ARG(in), NAME(name), {value, strlen(value)}};

	return kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_SETXATTR, 1, parts, 3), &r);
}

static void layout(void)
{
	const char *want = "table=0 width=0 seed=0 chunk_size=1048576 gen=0 inherited=0 replicas=0 "
			   "compression=0";

	assert_int_equal(get("leat.layout", 1000), 0);
	assert_string_equal((char *)r.data, want);
	assert_int_equal(get("leat.layout", 0), 0);
	assert_int_equal(r.xattr.size, strlen(want));
	assert_int_equal(get("leat.layout", 10), ERANGE);
	assert_int_equal(set("leat.layout", "width=4 chunk_size=65536 replicas=3 convert=1"), 0);
	assert_int_equal(fake_layout.width, 4);
	assert_int_equal(fake_layout.chunk_size, 65536);
	assert_int_equal(fake_layout.replicas, 3);
	assert_int_equal(fake_layout.flags, LAYOUT_F_CONVERT);
	assert_int_equal(fake.cred.flags, 0); /* the kernel does not check it: the server does */
	fake_fail("ll_layout_set", -LE_PERM);
	assert_int_equal(set("leat.layout", "width=4"), EPERM);
	assert_int_equal(set("leat.layout", "nonsense=4"), EINVAL);
}
RIG_TEST(layout)

static void test_layout_words(void **state)
{
	static const char *const bad[] = {"width",      "width=",        "width=x",
					  "width=1x",   "width=-1",      "width=4294967296",
					  "replicas=4", "compression=3", "convert=2",
					  "table=1",    "width=1,gen=2", "=4"};
	struct layout l = {.width = 9};
	char text[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(virtual_layout_parse(bad[i], strlen(bad[i]), &l), -LE_INVAL);
	assert_int_equal(l.width, 9);
	assert_int_equal(virtual_layout_parse(" width=2\ncompression=1 ", 23, &l), 0);
	assert_int_equal(l.width, 2);
	assert_int_equal(l.compression, COMPRESSION_LZ4);
	assert_int_equal(virtual_layout_parse("width=21", 7, &l), 0); /* not terminated */
	assert_int_equal(l.width, 2);
	assert_int_equal(virtual_layout_parse("convert=0", 9, &l), 0);
	assert_int_equal(l.flags, LAYOUT_F_STOP);
	memset(text, ' ', sizeof(text));
	assert_int_equal(virtual_layout_parse(text, sizeof(text), &l), -LE_INVAL);
}

static void status(void)
{
	json_t *j;

	assert_int_equal(get("leat.status", 4096), 0);
	j = json_loads((char *)r.data, 0, NULL);
	assert_non_null(j);
	assert_int_equal(json_integer_value(json_object_get(j, "session")), 42);
	assert_int_equal(json_integer_value(json_object_get(j, "read_ops")), 7);
	assert_int_equal(json_integer_value(json_object_get(j, "running")), 1); /* this request */
	assert_int_equal(json_integer_value(json_object_get(j, "supervisor")), 0);
	assert_non_null(json_object_get(j, "passthrough"));
	assert_non_null(json_object_get(j, "staged_copies"));
	json_decref(j);
	assert_int_equal(get("system.leat.status", 4096), 0);
	assert_int_equal(get("leat.memory", 4096), 0);
	assert_string_equal((char *)r.data, "{\"total\":12345}");
	assert_int_equal(fake_count("ll_getattr"), 0); /* without the metadata server */
}
RIG_TEST(status)

static void net(void)
{
	assert_int_equal(get("leat.net", 100), 0);
	assert_string_equal((char *)r.data, "{\"from\":0}");
	assert_int_equal(get("leat.net.17", 100), 0);
	assert_string_equal((char *)r.data, "{\"from\":17}");
	assert_int_equal(get("leat.net.", 100), ENODATA);
	assert_int_equal(get("leat.net.x", 100), ENODATA);
	assert_int_equal(get("leat.net.4294967296", 100), ENODATA);
	assert_int_equal(get("leat.network", 100), ENODATA); /* not a virtual one: a stored one */
	assert_int_equal(fake_count("ll_getxattr"), 1);
}
RIG_TEST(net)

static void quota(void)
{
	fake.mds_now_ns = 12000000000;
	assert_int_equal(get("leat.quota", 1000), 0);
	assert_string_equal((char *)r.data,
			    "project=3 own=1 bytes=4096 reserved=0 bytes_soft=100 bytes_hard=0 "
			    "inodes=0 inodes_soft=0 inodes_hard=0 bytes_over_s=7 inodes_over_s=0 "
			    "grace_s=60");
	assert_int_equal(set("leat.quota", "bytes_hard=1000 inodes_soft=5"), 0);
	assert_int_equal(fake_quota.mask, QUOTA_BYTES_HARD | QUOTA_INODES_SOFT);
	assert_int_equal(fake_quota.bytes_hard, 1000);
	assert_int_equal(fake_quota.inodes_soft, 5);
	assert_int_equal(fake_quota.ino.v, 1);
	assert_int_equal(set("leat.quota", "remove=1"), 0);
	assert_int_equal(fake_quota.mask, QUOTA_REMOVE);
	assert_int_equal(set("leat.quota", "bytes_hard=-1"), EINVAL);
	assert_int_equal(set("leat.quota", "bytes=1"), EINVAL);
	fake_fail("ll_quota_get", -LE_ACCES);
	assert_int_equal(get("leat.quota", 1000), EACCES);
}
RIG_TEST(quota)

static void project(void)
{
	fake.nodes[0].attr.project = 8;
	assert_int_equal(get("leat.project", 100), 0);
	assert_string_equal((char *)r.data, "8");
	assert_int_equal(set("leat.project", "9"), 0);
	assert_int_equal(fake.mask, SET_PROJECT);
	assert_int_equal(fake.nodes[0].attr.project, 9);
	assert_int_equal(set("leat.project", "4294967296"), EINVAL);
	assert_int_equal(set("leat.project", ""), EINVAL);
}
RIG_TEST(project)

/* The names are reserved: no attribute with such a name is stored. */
static void others_are_refused(void)
{
	assert_int_equal(set("leat.status", "x"), EPERM);
	assert_int_equal(set("leat.anything", "x"), EPERM);
	assert_int_equal(fake_count("ll_setxattr"), 0);
}
RIG_TEST(others_are_refused)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_layout),
		cmocka_unit_test(test_layout_words),
		cmocka_unit_test(run_status),
		cmocka_unit_test(run_net),
		cmocka_unit_test(run_quota),
		cmocka_unit_test(run_project),
		cmocka_unit_test(run_others_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
