/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: orphans, sizes after close and after a writer's end, truncation, appends, reclaim
 * after a restart. */
#include <fcntl.h>
#include <linux/falloc.h>

#include "mds/dispatch.h"
#include "mds/file/idle.h"
#include "tests/unit/mds/fixture.h"

static bool gone(struct fx *f, struct ino ino)
{
	struct attr a;

	return fx_getattr(f, ino, &a) == -LE_STALE;
}

/* Unlinked while open: it exists until the last close; then its space is reclaimed. */
static void orphan_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "o", O_RDWR, &a), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "o"), 0);
	assert_int_equal(fx_attr(f, a.ino).nlink, 0);
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 5000), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 5000);
	assert_int_equal(fx_link(f, a.ino, LEAT_ROOT_INO, "again"), -LE_NOENT);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_true(gone(f, a.ino));
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0); /* no effect */
	fx_sleep_ms(500);
	assert_int_equal(f->n_removed, 3); /* on each target of the stripe */
	assert_int_equal(f->m->opens.n, 0);
	assert_int_equal(f->m->opens.n_opens, 0);
}

static void size_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "s", O_WRONLY, &a), 0);
	assert_int_equal(a.flags & ~(uint32_t)ATTR_PLAIN, ATTR_UNSETTLED);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 700), 0);
	assert_int_equal(fx_attr(f, a.ino).flags & ~(uint32_t)ATTR_PLAIN, ATTR_UNSETTLED);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 300), 0);
	a = fx_attr(f, a.ino);
	assert_int_equal(a.flags & ~(uint32_t)ATTR_PLAIN, 0);
	assert_int_equal(a.size, 700);
	assert_int_equal(a.blocks, 2);
	/* an open for reading writes no record */
	uint64_t batches = f->m->store.durable_no, change = a.change;
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_int_equal(f->m->store.durable_no, batches);
	assert_int_equal(fx_attr(f, a.ino).change, change);
}

/* Two sessions write: the MDS queries the chains. */
static void two_writers_body(struct fx *f)
{
	uint64_t first = f->session;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "w", O_WRONLY, &a), 0);
	f->session = fx_session(f, 2);
	f->slot = 1;
	assert_int_equal(fx_open(f, a.ino, O_RDWR), 0);
	f->stat =
		(struct oss_stat_rep){.size = 123456, .used = 4096, .mtime_ns = 77, .n_chunks = 1};
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 100), 0);
	f->session = first;
	f->slot = 2;
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 50), 0);
	fx_sleep_ms(100);
	a = fx_attr(f, a.ino);
	assert_int_equal(a.flags & ~(uint32_t)ATTR_PLAIN, 0);
	assert_int_equal(a.size, 123456);
	assert_int_equal(a.blocks, 3 * 4096 / 512);
	assert_int_equal(metric_get(&f->m->metrics.settled), 1);
}

/* A writer's session ends: its files get their sizes from the chains. */
static void dead_writer_body(struct fx *f)
{
	uint64_t first = f->session, second = fx_session(f, 2);
	struct mds_session_close_req q = {second};
	struct mds_session_close_rep p;
	struct attr a, o;

	f->session = second;
	f->slot = 1;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "dead", O_WRONLY, &a), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "orphan", O_WRONLY, &o), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "orphan"), 0);
	f->stat.size = 999;
	assert_int_equal(fx_call_as(f, second, 0, 0, OP_mds_session_close, &q, &p), 0);
	fx_sleep_ms(100);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), -LE_SESSION_GONE);
	f->session = first;
	assert_int_equal(fx_attr(f, a.ino).size, 999);
	assert_int_equal(fx_attr(f, a.ino).flags & ~(uint32_t)ATTR_PLAIN, 0);
	assert_true(gone(f, o.ino));
	assert_int_equal(f->m->opens.n_opens, 0);
}

static void truncate_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "t", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	assert_int_equal(fx_truncate(f, a.ino, 200000), 0); /* longer: changes only the record */
	assert_int_equal(f->n_trims, 0);
	assert_int_equal(fx_truncate(f, a.ino, 50000), 0); /* shorter: three targets trim */
	assert_int_equal(f->n_trims, 3);
	assert_int_equal(fx_attr(f, a.ino).size, 50000);
	assert_int_equal(fx_attr(f, a.ino).layout.gen, 1);
	assert_int_equal(fx_truncate(f, a.ino, 0), 0); /* to zero, not open: a new generation */
	assert_int_equal(f->n_trims, 3);
	assert_int_equal(fx_attr(f, a.ino).layout.gen, 2);
	/* open: the generation stays, because capabilities name it */
	assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 10), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_TRUNC), 0);
	assert_int_equal(f->n_trims, 6);
	assert_int_equal(fx_attr(f, a.ino).size, 0);
	assert_int_equal(fx_attr(f, a.ino).layout.gen, 2);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, UINT64_MAX), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 0);
	/* an older close does not undo another session's truncation */
	assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
	uint64_t first = f->session;
	f->session = fx_session(f, 2);
	f->slot = 1;
	assert_int_equal(fx_truncate(f, a.ino, 7), 0);
	f->session = first;
	f->slot = 0;
	f->stat.size = 5;
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 4444), 0);
	fx_sleep_ms(100);
	assert_int_equal(fx_attr(f, a.ino).size, 7);
}

/* A range is zeroed, and then the chains cannot be queried how much of it is written: the earlier
 * preallocated bytes and the new ones count. */
static void zeroed_unasked_body(struct fx *f)
{
	struct mds_fallocate_req q = {.off = 0, .len = 4096};
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "z", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100), 0);
	q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(f->m->store.counters.unwritten, 4096);
	f->punched_fails = true;
	q.mode = FALLOC_FL_ZERO_RANGE;
	q.off = 1 << 20;
	q.len = 8192;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(f->n_punches, 3);
	assert_int_equal(f->m->store.counters.unwritten, 4096 + 8192);
	assert_int_equal(fx_attr(f, a.ino).blocks, 24);
	f->punched_fails = false;
}

/* A user outside the file's group cannot set S_ISGID, also not with another size, whether the file
 * gets shorter or not. */
static void sgid_body(struct fx *f)
{
	struct mds_setattr_req own = {.mask = SET_UID | SET_GID, .attr = {.uid = 7, .gid = 8}};
	struct mds_setattr_req q = {.cred = {.uid = 7, .gid = 7}};
	const uint64_t sizes[] = {0, 200000, 10};
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "s", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	own.ino = q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_setattr, &own, NULL), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		q.mask = SET_MODE | (sizes[i] > 0 ? SET_SIZE : 0);
		q.attr = (struct attr){.mode = 02755, .size = sizes[i]};
		assert_int_equal(fx_call(f, OP_mds_setattr, &q, NULL), 0);
		assert_int_equal(fx_attr(f, a.ino).mode & 07777, 0755);
	}
	assert_int_equal(f->n_trims, 3);
	q.cred.gid = 8;
	q.attr.size = 5;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, NULL), 0);
	assert_int_equal(fx_attr(f, a.ino).mode & 07777, 02755);
}

/* A session that has the file open for writing may change its size, whatever its mode is now. */
static void own_descriptor_body(struct fx *f)
{
	struct mds_fallocate_req q = {.off = 0, .len = 500};
	struct mds_setattr_req chmod = {.mask = SET_MODE, .attr = {.mode = 0444}};
	struct attr a;

	f->cred = (struct cred){.uid = 7, .gid = 7};
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "r", O_WRONLY, &a), -LE_ACCES);
	f->cred.flags = CRED_CHECKED;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "r", O_WRONLY, &a), 0);
	f->cred.flags = 0;
	q.cred = chmod.cred = f->cred;
	q.ino = chmod.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_setattr, &chmod, NULL), 0);
	assert_int_equal(fx_truncate(f, a.ino, 10), 0);
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 500), 0);
	assert_int_equal(fx_truncate(f, a.ino, 10), -LE_ACCES);
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_ACCES);
	f->cred = (struct cred){0};
}

static void fallocate_body(struct fx *f)
{
	struct mds_fallocate_req q = {.off = 1000, .len = 500};
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100), 0);
	q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 1500);
	assert_int_equal(fx_attr(f, a.ino).blocks, 8);
	assert_true(fx_attr(f, a.ino).flags & ATTR_PREPARED);
	assert_int_equal(f->m->store.counters.unwritten, 4096);
	q.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	q.off = 1400;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(f->n_punches, 3);
	assert_int_equal(fx_attr(f, a.ino).size, 1500);
	q.mode = FALLOC_FL_ZERO_RANGE;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 1900);
	q.mode = FALLOC_FL_KEEP_SIZE;
	q.off = 5000;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 1900);
	q.len = 1ull << 40; /* more than the free space */
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_NOSPC);
	q.mode = 0;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_NOSPC);
	assert_int_equal(fx_attr(f, a.ino).size, 1900);
	q.mode = FALLOC_FL_ZERO_RANGE; /* of a file with data too */
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_NOSPC);
	assert_int_equal(fx_attr(f, a.ino).size, 1900);
	assert_int_equal(fx_attr(f, a.ino).blocks, 16);
	q.mode = FALLOC_FL_COLLAPSE_RANGE;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_NOTSUP);
	q.mode = 0;
	q.off = INT64_MAX;
	q.len = 500;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_FBIG);
	assert_int_equal(fx_attr(f, a.ino).blocks, 16);
	assert_int_equal(fx_truncate(f, a.ino, 1000), 0);
	assert_int_equal(fx_attr(f, a.ino).blocks, 8);
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(fx_attr(f, a.ino).blocks, 0);
	assert_false(fx_attr(f, a.ino).flags & ATTR_PREPARED);
	assert_int_equal(f->m->store.counters.unwritten, 0);
}

/* As if the session had answered a recall of LEASE_APPEND. */
static void recalled(struct fx *f, uint64_t session, struct ino ino)
{
	struct lease *l =
		lease_find(&f->m->leases, ino, session_find(&f->m->sessions, session));

	assert_non_null(l);
	assert_int_equal(l->modes & LEASE_APPEND, LEASE_APPEND);
	lease_end(&f->m->leases, l, LEASE_APPEND);
}

static uint64_t append(struct fx *f, struct ino ino, uint64_t len, uint64_t size)
{
	struct mds_append_req q = {.ino = ino, .len = len, .size = size};
	struct mds_append_rep p;

	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	return p.off;
}

/* A mount closes one of two descriptors of a file and shortens the file by the other: the close may
 * have taken its size before the truncation and arrive after it. */
static void late_close_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "l", O_RDWR, &a), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDWR), 0);
	assert_int_equal(fx_truncate(f, a.ino, 1000), 0);
	f->stat.size = 900;
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 4444), 0);
	assert_int_equal(fx_attr(f, a.ino).size, 1000);
	assert_int_equal(append(f, a.ino, 10, 0), 1000);
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 1000), 0);
	fx_sleep_ms(100);
	assert_int_equal(fx_attr(f, a.ino).size, 1000);
	assert_int_equal(fx_attr(f, a.ino).flags & ~(uint32_t)ATTR_PLAIN, 0);
}

static void append_body(struct fx *f)
{
	uint64_t first = f->session, second = fx_session(f, 2);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "log", O_WRONLY | O_APPEND, &a), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 0);
	f->session = second;
	f->slot = 1;
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	f->oss_fail = true; /* while all sessions append, the chains are not queried */
	assert_int_equal(append(f, a.ino, 20, 0), 10);
	assert_int_equal(append(f, a.ino, 5, 100), 100); /* the client's size counts */
	assert_int_equal(fx_attr(f, a.ino).size, 0);     /* reserved, but not written */
	f->oss_fail = false;
	f->session = first;
	f->slot = 0;
	assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0); /* a session that writes at any offset */
	f->stat.size = 5000;
	assert_int_equal(append(f, a.ino, 1, 0), 105);
	f->session = second;
	f->slot = 1;
	assert_int_equal(append(f, a.ino, 1, 0), 5000);
	assert_int_equal(append(f, a.ino, 1, 0), 5001);
}

/* An append reservation from an ended session stays valid for its client until a truncation. */
static void former_place_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10};
	struct mds_append_rep p, again;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "placed", O_WRONLY | O_APPEND, &a), 0);
	q.ino = a.ino;
	assert_int_equal(append(f, a.ino, 100, 0), 0);
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 100);
	recalled(f, f->session, a.ino);
	f->session = fx_session(f, 2);
	f->slot = 1;
	/* A truncation would not recall the reservation of a session without the open. */
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_BADF);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_BADF);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 110);
	q.had_end = p.off + 10;
	q.had_truncations = p.n_truncations;
	q.had_there = 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 100);
	q.had_there = 0;
	assert_int_equal(append(f, a.ino, 10, 0), 120); /* reservations given meanwhile stay */
	q.had_end = 1000;				/* never reserved */
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 130);
	recalled(f, f->session, a.ino);
	assert_int_equal(fx_truncate(f, a.ino, 50), 0);
	q.had_end = p.off + 10;
	f->stat.size = 50;
	q.had_there = 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_EXIST);
	q.had_there = 0;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 50);
}

/* Another client has written in a reservation before its append: the free rest is reserved again,
 * after the end that the chains have. */
static void lost_place_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10, .had_lost = 1};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "lost", O_WRONLY | O_APPEND, &a), 0);
	q.ino = a.ino;
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 0);
	f->stat.size = 4;
	q.had_end = 10;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 4);
	assert_int_equal(append(f, a.ino, 10, 0), 14);
	/* A later reservation stays. */
	q.had_end = 14;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 24);
	/* A range from before a truncation is not reserved again. */
	q.had_end = 34;
	q.had_truncations = p.n_truncations + 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 34);
}

/* Another session truncates a log: its writer continues at the new end, though the writer reports
 * the old size. */
static void cut_log_body(struct fx *f)
{
	uint64_t first = f->session, second = fx_session(f, 2);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "log", O_WRONLY | O_APPEND, &a), 0);
	assert_int_equal(append(f, a.ino, 1000, 0), 0);
	recalled(f, first, a.ino);
	f->session = second;
	f->slot = 1;
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	f->session = first;
	f->slot = 0;
	assert_int_equal(append(f, a.ino, 10, 1000), 0);
	f->stat.size = 10;
	assert_int_equal(append(f, a.ino, 10, 1000), 10);
	assert_int_equal(append(f, a.ino, 10, 20), 20);
}

/* A log was truncated while a client had no session, and so had no open. The client's late close
 * has a flag that its size is uncertain: no append is placed after that size, and the unreported
 * writes of that client are not overwritten. */
static void doubted_close_body(struct fx *f)
{
	const uint32_t how = O_WRONLY | O_APPEND, doubts[] = {CLOSE_MUST_QUERY, CLOSE_TRUNCATED};
	uint64_t first = f->session, second = fx_session(f, 2);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "log", how, &a), 0);
	assert_int_equal(fx_close(f, a.ino, how, 1000), 0);
	assert_int_equal(fx_truncate(f, a.ino, 10), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(doubts); i++) {
		const uint64_t end = 10 + 51 * i;

		f->session = first;
		f->slot = 0;
		assert_int_equal(fx_open(f, a.ino, how), 0);
		assert_int_equal(fx_open(f, a.ino, how), 0);
		f->session = second;
		f->slot = 1;
		assert_int_equal(fx_open(f, a.ino, how), 0);
		assert_int_equal(append(f, a.ino, 1, 0), end);
		f->session = first;
		f->slot = 0;
		assert_int_equal(fx_close(f, a.ino, how | doubts[i], 1000), 0);
		f->stat.size = end + 1;
		assert_int_equal(append(f, a.ino, 1, 0), end + 1);
		assert_int_equal(fx_close(f, a.ino, how | doubts[i], UINT64_MAX), 0);
		f->session = second;
		f->slot = 1;
		f->stat.size = end + 50;
		assert_int_equal(append(f, a.ino, 1, 0), end + 50);
		f->stat.size = end + 51;
		assert_int_equal(fx_close(f, a.ino, how, end + 51), 0);
		fx_sleep_ms(100);
		assert_int_equal(fx_attr(f, a.ino).size, end + 51);
	}
}

/* The session may still write at its reservation, and answers no recall. */
static void silent_appender_body(struct fx *f)
{
	uint64_t first = f->session, second = fx_session(f, 2), began_us;
	struct mds_append_req q = {.len = 10};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "log", O_WRONLY | O_APPEND, &a), 0);
	assert_int_equal(append(f, a.ino, 1000, 0), 0);
	f->session = second;
	f->slot = 1;
	began_us = loop_now_us();
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_true(loop_now_us() - began_us >= f->params.client_lease_ms * 1000ull);
	assert_null(session_find(&f->m->sessions, first));
	assert_true(f->n_trims > 0);
	f->session = first;
	f->slot = 0;
	q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), -LE_SESSION_GONE);
}

static struct ino kept;

static void reclaim_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "r", O_WRONLY, &a), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "r"), 0);
	kept = a.ino;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "lost", O_WRONLY, &a), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "lost"), 0);
}

/* Orphans wait for the sessions that had them open, and not longer. */
static void reclaim_after(struct fx *f)
{
	struct mds_session_open_req so = {.client = {{1, 1}}, .session = f->session};
	struct mds_session_open_rep sp;
	struct ino never = {12345};
	uint32_t lost;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_session_open, &so, &sp), 0);
	assert_int_equal(sp.session, f->session);
	assert_int_equal(sp.reclaim, 1);
	fx_sleep_ms(1000);
	assert_int_equal(f->m->recovery.n_orphans, 2);
	/* A failed report does not count: the client repeats it. */
	f->m->opens.n_max = 0;
	assert_int_not_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0);
	f->m->opens.n_max = f->m->params.opens_max;
	assert_int_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0);
	assert_int_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0); /* repeated */
	assert_int_equal(f->m->opens.n_opens, 1);
	assert_int_equal(fx_reclaim(f, never, O_RDONLY, false, &lost), 0);
	assert_int_equal(lost, 1);
	assert_int_equal(fx_reclaim(f, never, O_RDONLY, true, &lost), 0); /* again */
	assert_int_equal(lost, 1);
	fx_sleep_ms(1000);
	assert_int_equal(f->m->recovery.n_orphans, 0);
	assert_int_equal(fx_attr(f, kept).nlink, 0);
	assert_int_equal(f->m->store.counters.n_inodes, 2);
	assert_int_equal(fx_close(f, kept, O_WRONLY, 1), 0);
	assert_true(gone(f, kept));
}

static void test_reclaim(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, reclaim_before);
	fx_crash(f);
	fx_run(f, reclaim_after);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

static struct ino hidden, settled;

static void missing_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "hidden", O_WRONLY, &a), 0);
	hidden = a.ino;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "settled", O_WRONLY, &a), 0);
	settled = a.ino;
	assert_int_equal(fx_close(f, settled, O_WRONLY, 0), 0);
}

/* The session had a write lease and does not return. A request for that file ends the session
 * first, so that its late writes are refused. Requests for other files do not end it. */
static void missing_after(struct fx *f)
{
	uint64_t missing = f->session, start_us = loop_now_us();
	const uint64_t term_us = f->params.client_lease_ms * 1000ull;

	f->session = fx_session(f, 2);
	f->slot = 1;
	assert_int_equal(fx_open(f, settled, O_WRONLY), 0);
	assert_int_equal(fx_truncate(f, settled, 10), 0);
	assert_true(loop_now_us() >= start_us + term_us);
	assert_non_null(session_find(&f->m->sessions, missing));
	assert_int_equal(fx_open(f, hidden, O_WRONLY), 0);
	assert_null(session_find(&f->m->sessions, missing));
	assert_true(loop_now_us() >= start_us + term_us + 2000ull * f->params.heartbeat_ms);
	assert_true(f->m->recovery.sessions_back);
}

static void test_missing_session(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, missing_before);
	fx_crash(f);
	fx_run(f, missing_after);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The session of a waiting request ends too: nothing is given to it afterwards. */
static int asked_rc;

static void asking_fiber(void *arg)
{
	struct fx *f = arg;
	struct frame_hdr hdr = {.op = OP_mds_getattr, .session = f->session};
	struct mds_getattr_req q = {.ino = hidden};
	struct mds_getattr_rep p = {0};
	struct op op;

	op_init(&op, f->m);
	asked_rc = op_run(&op, &hdr, &q, &p);
	op_fini(&op);
}

static void asks_and_goes(struct fx *f)
{
	uint64_t session = fx_session(f, 2);
	struct mds_session_close_req q = {.session = session};
	struct mds_session_close_rep p;

	f->session = session;
	asked_rc = 1;
	assert_int_equal(fiber_spawn("asks", asking_fiber, f), 0);
	fx_sleep_ms(10);
	assert_int_equal(fx_call_as(f, session, 0, 0, OP_mds_session_close, &q, &p), 0);
	assert_null(session_find(&f->m->sessions, session));
	f->session = fx_session(f, 3); /* may get the memory of the ended one */
	assert_int_equal(asked_rc, 1);
	fx_sleep_ms(20000);
	assert_int_equal(asked_rc, 0);
	assert_true(list_empty(&session_find(&f->m->sessions, f->session)->leases));
}

static void test_asks_and_goes(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, missing_before);
	fx_crash(f);
	fx_run(f, asks_and_goes);
	fx_destroy(f);
}

static void take_over(struct fx *f)
{
	struct mds_session_open_req so = {.client = {{1, 1}}, .session = f->session, .takeover = 1};
	struct mds_session_open_rep sp;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_session_open, &so, &sp), 0);
	assert_int_equal(sp.session, f->session);
	assert_int_equal(sp.reclaim, RECLAIM_TAKEOVER);
}

/* Another process takes the session over: what it reports stays open throughout. What it does not
 * report is closed when its reports are done, and no earlier. */
static void takeover_fiber(struct fx *f)
{
	struct ino none = {0}, unknown;
	struct attr a;
	uint32_t lost;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "kept", O_WRONLY, &a), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "kept"), 0);
	kept = a.ino;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "lost", O_WRONLY, &a), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "lost"), 0);
	unknown = a.ino;
	assert_int_equal(f->m->opens.n_opens, 2);
	take_over(f);
	assert_int_equal(f->m->opens.n_opens, 2);
	assert_int_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0);
	assert_int_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0); /* repeated */
	assert_int_equal(f->m->opens.n_opens, 3);
	/* The connection breaks, and the process reports everything again. */
	take_over(f);
	assert_int_equal(fx_reclaim(f, kept, O_WRONLY, false, &lost), 0);
	assert_int_equal(f->m->opens.n_opens, 4);
	assert_int_equal(fx_attr(f, unknown).nlink, 0);
	assert_int_equal(fx_reclaim(f, none, O_RDONLY, true, &lost), 0);
	assert_int_equal(f->m->opens.n_opens, 1);
	assert_true(gone(f, unknown));
	assert_int_equal(fx_attr(f, kept).nlink, 0);
	assert_int_equal(fx_close(f, kept, O_WRONLY, 1), 0);
	assert_true(gone(f, kept));
	assert_int_equal(f->m->opens.n_opens, 0);
}

/* A request of the previous process, or connection. */
struct former {
	struct fx *f;
	uint64_t seq;
	uint16_t op;
	const void *in;
	bool answered;
};

static void former_request(void *arg)
{
	struct former *r = arg;
	struct frame_hdr hdr = {.op = r->op, .session = r->f->session, .slot = 5, .seq = r->seq};
	uint64_t out[MSG_STRUCT_MAX / 8] = {0};
	struct op op;

	op_init(&op, r->f->m);
	assert_int_equal(op_run(&op, &hdr, r->in, out), 0);
	op_fini(&op);
	r->answered = true;
}

static bool is_asked(struct fx *f, struct ino ino)
{
	return open_file_find(&f->m->opens, ino)->busy.held;
}

static bool has_place(struct fx *f, struct ino ino)
{
	const struct inode_rec *rec;

	return inode_get(&f->m->store, ino, VIEW_NEWEST, NULL, &rec) == 0 &&
	       rec->append_end == 110;
}

/* A writer writes after the end that the chains have just returned, and its session ends without a
 * close, while an append waits for the chains or for durability: the next append queries the chains
 * again. */
static void end_of_a_writer_body(struct fx *f)
{
	bool (*const moments[])(struct fx *f, struct ino ino) = {is_asked, has_place};
	const char *const names[] = {"a", "b"};
	const uint32_t how = O_WRONLY | O_APPEND;
	const uint64_t first = f->session, second = fx_session(f, 2);
	const struct session *ends = session_find(&f->m->sessions, second);
	struct mds_append_req q = {.len = 10};
	struct former placed = {f, 0, OP_mds_append, &q, false};

	for (uint32_t i = 0; i < ARRAY_SIZE(moments); i++) {
		struct attr a;

		f->session = first;
		f->slot = 0;
		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, names[i], how, &a), 0);
		f->session = second;
		f->slot = 1;
		assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
		f->session = first;
		f->slot = 0;
		f->stat.size = 100;
		q.ino = a.ino;
		placed.seq++;
		placed.answered = false;
		assert_int_equal(fiber_spawn("append", former_request, &placed), 0);
		while (!moments[i](f, a.ino))
			assert_int_equal(fiber_sleep_us(1), 0);
		/* As the end of the session does. */
		open_drop_all(&f->m->opens, open_find(&f->m->opens, ends, a.ino));
		assert_false(placed.answered);
		fx_sleep_ms(100);
		assert_true(placed.answered);
		f->stat.size = 5000;
		assert_int_equal(append(f, a.ino, 10, 0), 5000);
	}
}

/* A seal during a truncation waits for the truncation. */
static void sealed_while_cut_body(struct fx *f)
{
	struct mds_setattr_req q = {.mask = SET_SIZE, .attr = {.size = 10}};
	struct former truncation = {f, 1, OP_mds_setattr, &q, false};
	struct mds_setattr_req seal = {.mask = SET_SEALED, .attr = {.flags = ATTR_SEALED}};
	struct mds_setattr_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "c", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	q.ino = seal.ino = a.ino;
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("truncate", former_request, &truncation), 0);
	fx_sleep_ms(300);
	f->oss_fail = false;
	assert_false(truncation.answered);
	assert_int_equal(fx_call(f, OP_mds_setattr, &seal, &p), 0);
	assert_int_equal(p.attr.size, 10);
	assert_true(fx_attr(f, a.ino).flags & ATTR_SEALED);
	fx_sleep_ms(10);
	assert_true(truncation.answered);
	assert_int_equal(fx_truncate(f, a.ino, 0), -LE_PERM);
}

/* The request is executed, but not durable yet, when the session is taken over. */
static void take_over_from(struct former *r)
{
	const uint64_t n_opens = r->f->m->opens.n_opens;

	assert_int_equal(fiber_spawn("former", former_request, r), 0);
	while (r->f->m->opens.n_opens == n_opens)
		assert_int_equal(fiber_sleep_us(1), 0);
	take_over(r->f);
	assert_false(r->answered);
}

static void takeover_under_way_body(struct fx *f)
{
	struct mds_create_req create = {
		.parent = LEAT_ROOT_INO, .name = bytes_str("u"), .mode = 0600, .flags = O_RDWR};
	struct former first = {f, 1, OP_mds_create, &create, false};
	struct mds_close_req close = {.flags = O_WRONLY | CLOSE_ATIME | CLOSE_STRICT};
	struct former second = {f, 2, OP_mds_close, &close, false};
	struct mds_create_rep made;
	struct mds_close_rep closed;
	struct ino none = {0};
	uint32_t lost;

	take_over_from(&first);
	assert_int_equal(fx_call_as(f, f->session, 5, 1, OP_mds_create, &create, &made), 0);
	assert_true(first.answered);
	assert_int_equal(fx_reclaim(f, none, O_RDONLY, true, &lost), 0);
	assert_int_equal(f->m->opens.n_opens, 1);
	/* One of two opens is being closed when the connection breaks: the client reports both, and
	 * repeats the close. */
	close.ino = made.attr.ino;
	assert_int_equal(fx_open(f, close.ino, O_WRONLY), 0);
	take_over_from(&second);
	assert_int_equal(fx_reclaim(f, close.ino, O_RDWR, false, &lost), 0);
	assert_int_equal(fx_reclaim(f, close.ino, O_WRONLY, false, &lost), 0);
	assert_int_equal(fx_call_as(f, f->session, 5, 2, OP_mds_close, &close, &closed), 0);
	assert_int_equal(fx_reclaim(f, none, O_RDONLY, true, &lost), 0);
	assert_int_equal(f->m->opens.n_opens, 1);
}

static void test_takeover_of_what_is_under_way(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, takeover_under_way_body);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

static void test_takeover(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, takeover_fiber);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* An assumed open does not end with closes of other opens. */
static void presumed_body(struct fx *f)
{
	struct session *se = session_find(&f->m->sessions, f->session);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "p", O_RDONLY, &a), 0);
	assert_int_equal(open_assume(&f->m->opens, se, a.ino), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "p"), 0);
	assert_false(gone(f, a.ino));
	open_assumed_end(&f->m->opens, open_find(&f->m->opens, se, a.ino));
	assert_true(list_empty(&se->assumed));
	assert_int_equal(data_idle(f->m, a.ino), 0);
	assert_true(gone(f, a.ino));
}

/* During the orphan delay a client that has just looked up the name can open the replaced file. */
static void linger_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cur", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 10), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "new", O_WRONLY, NULL), 0);
	assert_int_equal(fx_rename(f, LEAT_ROOT_INO, "new", LEAT_ROOT_INO, "cur", 0), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), -LE_STALE);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY | OPEN_ORPHAN), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), -LE_STALE); /* also while it is open */
	fx_sleep_ms(8000);
	assert_int_equal(fx_attr(f, a.ino).nlink, 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_true(gone(f, a.ino));
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "new", O_RDONLY, NULL), 0);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "cur", &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, UINT64_MAX), 0);
	assert_int_equal(fx_rename(f, LEAT_ROOT_INO, "new", LEAT_ROOT_INO, "cur", 0), 0);
	assert_int_equal(fx_attr(f, a.ino).nlink, 0);
	fx_sleep_ms(8000);
	assert_true(gone(f, a.ino));
	/* likewise if it was open when it was replaced */
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "new", O_WRONLY, NULL), 0);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "cur", &a), 0);
	assert_int_equal(fx_rename(f, LEAT_ROOT_INO, "new", LEAT_ROOT_INO, "cur", 0), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY | OPEN_ORPHAN), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	fx_sleep_ms(8000);
	assert_true(gone(f, a.ino));
}

static void expiry_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "x", O_WRONLY, &a), 0);
	f->stat.size = 42;
	fx_sleep_ms(f->params.session_ttl_ms - 5000);
	assert_int_equal(f->m->sessions.n, 1);
	fx_sleep_ms(10000);
	assert_int_equal(f->m->sessions.n, 0);
	assert_int_equal(fx_attr(f, a.ino).size, 42);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), -LE_SESSION_GONE);
}

/* The opens of an ended session end in batches of many files, not one file at a time. */
static void many_opens_body(struct fx *f)
{
	const uint32_t n = 700;
	uint64_t inodes = f->m->store.counters.n_inodes, batches;
	struct attr a;
	char name[16];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, name, O_RDONLY, &a), 0);
		assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, name), 0);
	}
	assert_int_equal(f->m->store.counters.n_inodes, inodes + n);
	batches = metric_get(&f->m->metrics.batches);
	fx_sleep_ms(f->params.session_ttl_ms + 5000);
	assert_int_equal(f->m->sessions.n, 0);
	assert_int_equal(f->m->store.counters.n_inodes, inodes);
	assert_int_equal(f->m->opens.n, 0);
	assert_true(metric_get(&f->m->metrics.batches) - batches < n / 10);
}

TEST(test_orphan, orphan_body)
TEST(test_size, size_body)
TEST(test_two_writers, two_writers_body)
TEST(test_dead_writer, dead_writer_body)
TEST(test_truncate, truncate_body)
TEST(test_presumed, presumed_body)
TEST(test_late_close, late_close_body)
TEST(test_sealed_while_cut, sealed_while_cut_body)
TEST(test_own_descriptor, own_descriptor_body)
TEST(test_sgid, sgid_body)
TEST(test_fallocate, fallocate_body)
TEST(test_zeroed_unasked, zeroed_unasked_body)
TEST(test_append, append_body)
TEST(test_lost_place, lost_place_body)
TEST(test_former_place, former_place_body)
TEST(test_cut_log, cut_log_body)
TEST(test_doubted_close, doubted_close_body)
TEST(test_end_of_a_writer, end_of_a_writer_body)
TEST(test_silent_appender, silent_appender_body)
TEST(test_linger, linger_body)
TEST(test_expiry, expiry_body)
TEST(test_many_opens, many_opens_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_two_writers),
		cmocka_unit_test(test_dead_writer),
		cmocka_unit_test(test_truncate),
		cmocka_unit_test(test_late_close),
		cmocka_unit_test(test_sealed_while_cut),
		cmocka_unit_test(test_own_descriptor),
		cmocka_unit_test(test_sgid),
		cmocka_unit_test(test_fallocate),
		cmocka_unit_test(test_zeroed_unasked),
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_former_place),
		cmocka_unit_test(test_lost_place),
		cmocka_unit_test(test_cut_log),
		cmocka_unit_test(test_doubted_close),
		cmocka_unit_test(test_end_of_a_writer),
		cmocka_unit_test(test_silent_appender),
		cmocka_unit_test(test_reclaim),
		cmocka_unit_test(test_missing_session),
		cmocka_unit_test(test_asks_and_goes),
		cmocka_unit_test(test_takeover),
		cmocka_unit_test(test_takeover_of_what_is_under_way),
		cmocka_unit_test(test_presumed),
		cmocka_unit_test(test_linger),
		cmocka_unit_test(test_expiry),
		cmocka_unit_test(test_many_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
