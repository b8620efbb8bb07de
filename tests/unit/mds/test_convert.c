/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions to another number of replicas: which users may request them, and which are on
 * record. */
#include <fcntl.h>

#include "mds/dispatch.h"
#include "mds/store/scan.h"
#include "tests/unit/mds/fixture.h"

static int ask(struct fx *f, struct ino ino, uint32_t replicas, uint32_t flags)
{
	struct mds_layout_set_req q = {.cred = f->cred,
				       .ino = ino,
				       .layout = {.replicas = (uint8_t)replicas,
						  .flags = (uint8_t)flags}};

	return fx_call(f, OP_mds_layout_set, &q, NULL);
}

static int convert(struct fx *f, struct ino ino, uint32_t replicas)
{
	return ask(f, ino, replicas, LAYOUT_F_CONVERT);
}

/* Makes a directory with a file that stays open, so that no conversion of it ends. */
static struct ino busy_dir(struct fx *f, struct ino parent, const char *name)
{
	struct ino dir;

	assert_int_equal(fx_mkdir(f, parent, name, &dir), 0);
	assert_int_equal(fx_create_file(f, dir, "open", O_WRONLY, NULL), 0);
	return dir;
}

struct found {
	struct ino ino;
	uint32_t replicas, n;
};

static void find(void *arg, const struct conversion_view *v)
{
	struct found *fd = arg;

	fd->n++;
	if (ino_equal(v->root, fd->ino))
		fd->replicas = v->replicas;
}

static struct found conversions(struct fx *f, struct ino ino)
{
	struct found fd = {.ino = ino};

	conversions_each(f->m, find, &fd);
	return fd;
}

/* Returns the status with which the conversion of ino ended; 1: it has not ended, or is not
 * recorded. */
static int ended(struct fx *f, struct ino ino)
{
	const struct conversions *cv = &f->m->conversions;

	for (uint32_t i = 0; i < cv->n_ends; i++)
		if (ino_equal(cv->ends[i].root, ino))
			return cv->ends[i].status;
	return 1;
}

/* A request without permission changes nothing: no conversion here, no other conversion, and no
 * chains. */
static void who_may_body(struct fx *f)
{
	struct ino top, in;
	struct attr a;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "top", &top), 0);
	in = busy_dir(f, top, "in");
	assert_int_equal(fx_create_file(f, top, "file", O_WRONLY, &a), 0);
	assert_int_equal(convert(f, in, 2), 0);
	f->cred.uid = f->cred.gid = 1000;
	assert_int_equal(convert(f, top, 1), -LE_PERM);
	assert_int_equal(convert(f, in, 3), -LE_PERM);
	assert_int_equal(ask(f, in, 3, LAYOUT_F_STOP), -LE_PERM);
	assert_int_equal(ask(f, top, 3, 0), -LE_PERM);
	assert_int_equal(conversions(f, in).replicas, 2);
	assert_int_equal(f->m->cluster.classes[3].table, 0);
	f->cred.uid = f->cred.gid = 0;
	assert_int_equal(ask(f, top, 3, 0), 0);
	assert_int_not_equal(f->m->cluster.classes[3].table, 0);
}
TEST(test_who_may, who_may_body)

/* A request concurrent with those of fx_call. */
struct request {
	struct fx *f;
	uint32_t slot;
	uint64_t seq;
	struct mds_layout_set_req req;
	bool answered;
	int rc;
};

static void request(void *arg)
{
	struct request *r = arg;
	struct frame_hdr hdr = {
		.op = OP_mds_layout_set, .session = r->f->session, .slot = r->slot, .seq = r->seq};
	struct mds_layout_set_rep p = {0};
	struct op op;

	op_init(&op, r->f->m);
	r->rc = op_run(&op, &hdr, &r->req, &p);
	op_fini(&op);
	r->answered = true;
}

static void sleep_us(uint64_t us)
{
	assert_int_equal(fiber_sleep_us(us), 0);
}

static bool on_record(struct fx *f, struct ino ino)
{
	struct kv_value v;

	if (store_get_record(&f->m->store, key_of('V', ino.v), &v) != 0)
		return false;
	kv_value_fini(&v);
	return true;
}

/* A conversion is requested again at any time while the previous one ends: it runs and is on
 * record. */
static void again_body(struct fx *f)
{
	struct ino dir = busy_dir(f, LEAT_ROOT_INO, "dir");
	struct request first = {.f = f, .slot = 5};

	first.req = (struct mds_layout_set_req){
		.ino = dir, .layout = {.replicas = 1, .flags = LAYOUT_F_CONVERT}};
	for (uint32_t us = 25; us < 2000; us += 25) {
		first.seq++;
		first.answered = false;
		assert_int_equal(fiber_spawn("ask", request, &first), 0);
		sleep_us(us);
		assert_int_equal(convert(f, dir, 2), 0);
		sleep_us(1000000);
		assert_true(first.answered && first.rc == 0);
		assert_int_equal(conversions(f, dir).replicas, 2);
		assert_true(on_record(f, dir));
		assert_int_equal(ended(f, dir), 1);
		assert_int_equal(ask(f, dir, 0, LAYOUT_F_STOP), 0);
		assert_false(on_record(f, dir));
		assert_int_equal(ended(f, dir), -LE_CANCELED);
		sleep_us(20000000);
		assert_int_equal(f->m->conversions.n, 0);
		assert_int_equal(ended(f, dir), -LE_CANCELED);
	}
}
TEST(test_again, again_body)

/* Below a tree that is converted no other conversion runs, also if it was moved there: the two
 * would convert each other's files without end. */
static void moved_body(struct fx *f)
{
	struct ino outer = busy_dir(f, LEAT_ROOT_INO, "outer");
	struct ino inner = busy_dir(f, LEAT_ROOT_INO, "inner");

	assert_int_equal(convert(f, outer, 3), 0);
	assert_int_equal(convert(f, inner, 2), 0);
	sleep_us(20000000);
	assert_int_equal(f->m->conversions.n, 2);
	assert_int_equal(fx_attr(f, inner).layout.replicas, 2);
	assert_int_equal(fx_rename(f, LEAT_ROOT_INO, "inner", outer, "inner", 0), 0);
	assert_int_equal(convert(f, inner, 2), -LE_BUSY);
	sleep_us(40000000);
	assert_int_equal(f->m->conversions.n, 1);
	assert_int_equal(conversions(f, outer).replicas, 3);
	assert_false(on_record(f, inner));
	assert_int_equal(fx_attr(f, inner).layout.replicas, 3);
	assert_int_equal(ended(f, inner), -LE_CANCELED);
	assert_int_equal(ended(f, outer), 1);
}
TEST(test_moved, moved_body)

/* A waiting client gets the result of its conversion. The server keeps the last CONVERSION_ENDS_MAX
 * results. */
static void ends_body(struct fx *f)
{
	struct ino gone, dir, first;

	gone = busy_dir(f, LEAT_ROOT_INO, "gone");
	assert_int_equal(convert(f, gone, 2), 0);
	/* The conversion waits for the file. The sleep ends between two walks: a walk between the
	 * two removals below would end the conversion with success. */
	sleep_us(1300000);
	assert_int_equal(ended(f, gone), 1);
	assert_int_equal(fx_unlink(f, gone, "open"), 0);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "gone"), 0);
	sleep_us(40000000);
	assert_int_equal(ended(f, gone), -LE_STALE);
	for (uint32_t i = 0; i < CONVERSION_ENDS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "d%u", i);
		assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, name, &dir), 0);
		first = i == 0 ? dir : first;
		assert_int_equal(convert(f, dir, 2), 0);
		assert_int_equal(ended(f, dir), 1);
		sleep_us(20000000);
		assert_int_equal(ended(f, dir), 0);
		assert_int_equal(f->m->conversions.ends[f->m->conversions.n_ends - 1].replicas, 2);
	}
	assert_int_equal(f->m->conversions.n_ends, CONVERSION_ENDS_MAX);
	assert_int_equal(ended(f, gone), 1);
	assert_int_equal(ended(f, first), 0);
	assert_int_equal(convert(f, first, 1), 0);
	assert_int_equal(ended(f, first), 1);
}
TEST(test_ends, ends_body)

/* A server that stops ends no conversion: waiting clients query the next server. */
static void stops_body(struct fx *f)
{
	struct mds_status_req q = {0};
	struct ino dir = busy_dir(f, LEAT_ROOT_INO, "dir");

	assert_int_equal(convert(f, dir, 2), 0);
	sleep_us(1000000);
	assert_int_equal(fx_call(f, OP_mds_status, &q, NULL), 0);
	f->m->stopping = true;
	waitq_wake_all(&f->m->stop);
	sleep_us(1000000);
	assert_int_equal(f->m->conversions.n, 0);
	assert_int_equal(ended(f, dir), 1);
	assert_int_equal(fx_call(f, OP_mds_status, &q, NULL), -LE_SHUTDOWN);
	assert_true(on_record(f, dir));
}
TEST(test_stops, stops_body)

/* A newer conversion of a whole tree cancels one of a part of it, also if both are requested
 * concurrently. */
static struct ino outer, inner;

static void part_and_whole(struct fx *f)
{
	struct request part = {.f = f, .slot = 5};

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "outer", &outer), 0);
	inner = busy_dir(f, outer, "inner");
	part.req = (struct mds_layout_set_req){
		.ino = inner, .layout = {.replicas = 2, .flags = LAYOUT_F_CONVERT}};
	for (uint32_t us = 25; us < 1000; us += 25) {
		part.seq++;
		part.answered = false;
		assert_int_equal(fiber_spawn("ask", request, &part), 0);
		sleep_us(us);
		assert_int_equal(convert(f, outer, 3), 0);
		assert_true(part.answered && part.rc == 0);
		assert_int_equal(conversions(f, outer).n, 1);
		assert_int_equal(conversions(f, outer).replicas, 3);
		assert_false(on_record(f, inner));
		assert_int_equal(ended(f, inner), -LE_CANCELED);
		assert_int_equal(convert(f, inner, 2), -LE_BUSY);
		assert_int_equal(ask(f, outer, 0, LAYOUT_F_STOP), 0);
		sleep_us(20000000);
	}
	assert_int_equal(convert(f, inner, 2), 0);
	assert_int_equal(convert(f, outer, 3), 0);
}

static void whole_goes_on(struct fx *f)
{
	assert_int_equal(conversions(f, outer).n, 1);
	assert_int_equal(conversions(f, outer).replicas, 3);
}

static void test_part_and_whole(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, part_and_whole);
	fx_crash(f);
	fx_run(f, whole_goes_on);
	fx_destroy(f);
}

/* The number of conversions is limited, however many are requested concurrently. A server that
 * finds more on record starts nevertheless. */
#define MOST 64u

static void too_many(struct fx *f)
{
	static struct request at_once[FX_SLOTS];
	uint32_t n = 0;
	struct ino dir;

	for (uint32_t i = 0; i < MOST + FX_SLOTS / 2; i++) {
		struct request *r = &at_once[i % FX_SLOTS];
		char name[16];

		snprintf(name, sizeof(name), "d%u", i);
		dir = busy_dir(f, LEAT_ROOT_INO, name);
		if (i < MOST - FX_SLOTS / 2) {
			assert_int_equal(convert(f, dir, 2), 0);
			continue;
		}
		*r = (struct request){.f = f, .slot = i % FX_SLOTS, .seq = 10000};
		r->req = (struct mds_layout_set_req){
			.ino = dir, .layout = {.replicas = 2, .flags = LAYOUT_F_CONVERT}};
	}
	for (uint32_t i = 0; i < FX_SLOTS; i++)
		assert_int_equal(fiber_spawn("ask", request, &at_once[i]), 0);
	sleep_us(1000000);
	for (uint32_t i = 0; i < FX_SLOTS; i++) {
		assert_true(at_once[i].answered);
		assert_true(at_once[i].rc == 0 || at_once[i].rc == -LE_OVERLOAD);
		assert_int_equal(on_record(f, at_once[i].req.ino), at_once[i].rc == 0);
		n += at_once[i].rc == 0;
	}
	assert_int_equal(n, FX_SLOTS / 2);
	assert_int_equal(conversions(f, dir).n, MOST);
	/* As an older server may have left the store. */
	assert_int_equal(txn_begin(&f->m->store), 0);
	for (uint32_t i = 0; i < FX_SLOTS; i++)
		TXN_PUT(&f->m->store, key_of('V', at_once[i].req.ino.v), convert_rec,
			&((struct convert_rec){.replicas = 2}));
	assert_int_equal(store_wait(&f->m->store, txn_end(&f->m->store)), 0);
}

static void all_go_on(struct fx *f)
{
	struct ino none = {0};

	assert_int_equal(conversions(f, none).n, MOST + FX_SLOTS / 2);
}

static void test_too_many(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, too_many);
	fx_crash(f);
	fx_run(f, all_go_on);
	fx_destroy(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_may),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_part_and_whole),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
