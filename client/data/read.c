/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/read.h"

#include <string.h>

#include "client/base/background.h"
#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "client/data/append.h"
#include "client/data/capability.h"
#include "client/data/chunk_lease.h"
#include "client/data/fetch.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/readahead.h"
#include "client/data/size.h"
#include "client/data/write_coalesce.h"
#include "client/layout/block_sums.h"
#include "client/layout/slot_vec.h"
#include "client/ll.h"
#include "common/base/assert.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define PREAD_WIDTH  8u

/* Returns a free slot for a read. If there is none, sends coalesced data and waits. Yields. */
static int get_slot(struct client *c, uint32_t len, struct slot **ret_slot)
{
	int rc;

	if (len <= SMALL_SLOT_SIZE) {
		*ret_slot = slot_try_get(c->small);
		if (*ret_slot != NULL)
			return 0;
	}
	*ret_slot = slot_try_get(c->slots);
	if (*ret_slot != NULL)
		return 0;
	/* Coalesced data holds slots until it is sent. */
	coalesce_submit_all(c, UINT64_MAX);
	rc = slot_get(c->slots, client_deadline(c), ret_slot);
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

static int read_direct(struct inode_io *d, uint64_t off, uint32_t len,
		       struct ll_chunk_leases *leases, struct ll_data *data,
		       struct block_sums *sums)
{
	struct slot_vec to = {NULL, 0, len};
	int rc;

	TRY(get_slot(d->c, len, &to.slot));
	rc = fetch_range(d, off, &to, leases, sums);
	if (rc < 0) {
		slot_unref(to.slot);
		return rc;
	}
	data->vec[data->n++] = to;
	data->len += len;
	return 0;
}

/* Without a lease the size may change at any time. A shared lease gives a lower bound. */
int size_for_read(struct ll_file *f, uint64_t enough, uint64_t *ret_size)
{
	struct cred cred;
	struct attr attr;

	inode_attr(f->c, f->inode, &attr);
	if ((attr.flags & (ATTR_SEALED | ATTR_LEASED)) == 0) {
		if (lease_shared(f->c, f->inode) && f->inode->shared_size >= enough) {
			*ret_size = f->inode->shared_size;
			return 0;
		}
		cred = cap_renew_cred(f->d);
		TRY(size_get_attr(f->c, &cred, f->inode, &attr));
	}
	*ret_size = attr.size;
	return 0;
}

/* Returns true if prefetched data may be used. Without a lease it could be outdated. */
static bool reads_ahead(const struct ll_file *f)
{
	return !f->direct && (lease_held(f->c, f->inode) || inode_is_fixed(f->inode));
}

static int read_parts(struct ll_file *f, uint64_t off, uint32_t len,
		      struct ll_chunk_leases *leases, struct ll_data *data, struct block_sums *sums)
{
	bool ahead = leases == NULL && reads_ahead(f);
	int rc = 0;

	block_sums_clear(sums, off, len);
	data->n = 0;
	data->len = 0;
	while (data->len < len && rc >= 0) {
		uint32_t left = len - (uint32_t)data->len;
		uint64_t at = off + data->len;

		rc = ahead ? ra_take(f->d, at, left, data, sums) : 0;
		if (rc == 0)
			rc = read_direct(f->d, at, ahead ? ra_gap(f->d, at, left) : left, leases,
					 data, sums);
	}
	if (rc < 0)
		ll_data_release(data);
	return rc < 0 ? rc : 0;
}

/* Reads a range, this client's writes included. If an object server crashes and loses an accepted
 * write, the read is repeated after the write was. */
static int read_own(struct ll_file *f, uint64_t off, uint32_t len, struct ll_chunk_leases *leases,
		    struct ll_data *data, struct block_sums *sums)
{
	for (;;) {
		uint64_t seen;
		bool own;

		TRY(wb_flush_visible_range(f->d, off, len));
		own = wb_pending(f->d, off, len);
		seen = f->c->n_retracted;
		TRY(read_parts(f, off, len, leases, data, sums));
		if (!own || seen == f->c->n_retracted)
			return 0;
		ll_data_release(data);
	}
}

static int check_read(struct ll_file *f, uint64_t off, uint32_t len)
{
	if (!f->can_read)
		return -LE_BADF;
	if (len > LL_IO_MAX || off > LEAT_FILE_SIZE_MAX)
		return -LE_INVAL;
	f->was_read = true;
	f->d->read_buffered |= !f->direct;
	return 0;
}

/*
 * A truncation removes bytes on the object servers before the MDS reports the new size. A read up
 * to the old size can meet holes there. So zeros from a hole are valid only if a lease held all the
 * time, or a query of the MDS, proves that the file was not truncated since its size was requested.
 * Otherwise the client waits for the end of the truncation, requests the size again and reads
 * everything again. A read without holes needs no query: the stored data is in the file.
 */
struct attempt {
	struct ll_file *f;
	uint64_t n_holes; /* inode_io.n_holes before the attempt */
	uint32_t n_truncations;    /* attr.n_truncations before the attempt */
	struct trunc_patience patience;
	uint64_t until_us; /* with chunk leases: deadline for a result that they cover */
};

static void attempt_begin(struct attempt *a)
{
	a->n_truncations = a->f->inode->attr.n_truncations;
	/* Prefetched data may have met holes long before this attempt. */
	a->n_holes = reads_ahead(a->f) ? 0 : a->f->d->n_holes;
}

/* Determines whether the file was truncated during the attempt. hole: the result contains a hole.
 * Yields. */
static int attempt_truncated(const struct attempt *a, bool hole, enum trunc_state *ret_state)
{
	*ret_state = TRUNC_NONE;
	if (!hole || PLANTED_BUG(CLIENT_TRUST_HOLES))
		return 0;
	return size_truncated_since(a->f->c, a->f->inode, a->n_truncations, ret_state);
}

/* Like attempt_truncated, and waits while a truncation is active. Returns 1 if the read must be
 * repeated. Yields. */
static int attempt_end(struct attempt *a)
{
	enum trunc_state truncated;

	TRY(attempt_truncated(a, a->n_holes != a->f->d->n_holes, &truncated));
	if (truncated == TRUNC_ACTIVE)
		TRY(size_wait_untruncated(a->f->c, &a->patience));
	return truncated != TRUNC_NONE;
}

/* Limits *len to the file's size, and starts prefetching. Yields. */
static int read_begin(struct ll_file *f, uint64_t off, uint32_t *len)
{
	uint64_t size;

	TRY(size_for_read(f, off + *len, &size));
	if (off >= size)
		*len = 0;
	else if (size - off < *len)
		*len = (uint32_t)(size - off);
	if (reads_ahead(f) && *len > 0)
		ra_note(f->d, &f->ra, off, *len, size);
	return 0;
}

void ll_expect_read(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct attr attr;

	if (!f->can_read || f->can_write || !reads_ahead(f))
		return;
	inode_attr(f->c, f->inode, &attr);
	f->expected = ra_opened(f->d, attr.size);
}

bool ll_past_pages(const struct ll_file *f)
{
	return f->direct && f->d->read_buffered;
}

static int read_whole(struct ll_file *f, uint64_t off, uint32_t most, struct ll_data *data,
		      struct block_sums *sums)
{
	struct attempt a = {.f = f};
	uint32_t len;
	int rc;

	do {
		attempt_begin(&a);
		len = most;
		data->n = 0;
		data->len = 0;
		TRY(read_begin(f, off, &len));
		TRY(len > 0 ? read_own(f, off, len, NULL, data, sums) : 0);
		rc = attempt_end(&a);
		if (rc != 0)
			ll_data_release(data);
	} while (rc > 0);
	return rc;
}

static int read_slots(struct ll_file *file, uint64_t off, uint32_t len, struct ll_data *ret_data,
		      struct block_sums *sums)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct ll_data data;

	TRY(check_read(f, off, len));
	TRY(read_whole(f, off, len, &data, sums));
	f->c->stats.read_ops++;
	f->c->stats.read_bytes += data.len;
	ret_data->n = data.n;
	ret_data->len = data.len;
	memcpy(ret_data->vec, data.vec, data.n * sizeof(data.vec[0]));
	return 0;
}

int ll_read(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data)
{
	return read_slots(f, off, len, ret_data, NULL);
}

/* Limits the data to its first len bytes. */
static void truncate_data(struct ll_data *d, uint64_t len)
{
	if (len >= d->len)
		return;
	d->len = 0;
	for (uint32_t i = 0; i < d->n; i++) {
		uint64_t left = len - d->len;

		if (d->vec[i].len > left)
			d->vec[i].len = (uint32_t)left;
		d->len += d->vec[i].len;
	}
}

/* Returns the size that a read under chunk leases may assume: stored data without a hole beyond the
 * size is in the file. If the range has two chunks, the second may have been read after both had
 * grown. */
static uint64_t reaches(const struct ll_chunk_leases *leases, uint64_t size)
{
	uint64_t end = leases->hole < leases->stored_end ? leases->hole : leases->stored_end;

	return size < end ? end : size;
}

/* Reads beyond the size that was requested, because the file may have grown by then, and truncates
 * the result to the size. Yields. */
static int read_under(struct ll_file *f, uint64_t off, uint32_t len, struct ll_chunk_leases *leases,
		      struct ll_data *data)
{
	uint64_t size;

	TRY(size_for_read(f, off + len, &size));
	TRY(read_own(f, off, len, leases, data, NULL));
	size = reaches(leases, size);
	truncate_data(data, size > off ? size - off : 0);
	return 0;
}

/* One attempt. Returns 1 if it must be repeated. During a truncation the chunk leases are released,
 * so that they do not block it. A result that took more than half of CHUNK_LEASE_MS is read again,
 * because the other half is the caller's; -LE_IO if no attempt is fast enough. Yields. */
static int read_once_leased(struct attempt *a, uint64_t off, uint32_t len, struct ll_data *data,
			    struct ll_chunk_leases **ret_leases)
{
	struct ll_chunk_leases *leases = chunk_leases_make(a->f->d);
	uint64_t late_us = loop_deadline_ms(CHUNK_LEASE_MS / 2);
	enum trunc_state truncated = TRUNC_NONE;
	int rc;

	if (leases == NULL)
		return -LE_NOMEM;
	data->n = 0;
	data->len = 0;
	attempt_begin(a);
	rc = len > 0 ? read_under(a->f, off, len, leases, data) : 0;
	if (rc >= 0)
		rc = attempt_truncated(a, leases->hole < off + data->len, &truncated);
	if (rc >= 0 && truncated == TRUNC_NONE && loop_now_us() < late_us) {
		*ret_leases = leases;
		return 0;
	}
	if (rc >= 0 && truncated == TRUNC_NONE && loop_now_us() >= a->until_us)
		rc = -LE_IO;
	ll_data_release(data);
	ll_release_leases(leases);
	if (rc >= 0 && truncated == TRUNC_ACTIVE)
		rc = size_wait_untruncated(a->f->c, &a->patience);
	return rc < 0 ? rc : 1;
}

int ll_read_leased(struct ll_file *file, uint64_t off, uint32_t len, struct ll_data *ret_data,
		   struct ll_chunk_leases **ret_leases)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct attempt a = {.f = f, .until_us = client_deadline(f->c)};
	int rc;

	*ret_leases = NULL;
	ret_data->n = 0;
	ret_data->len = 0;
	TRY(check_read(f, off, len));
	do
		rc = read_once_leased(&a, off, len, ret_data, ret_leases);
	while (rc > 0);
	TRY(rc);
	f->c->stats.read_ops++;
	f->c->stats.read_bytes += ret_data->len;
	return 0;
}

void ll_data_release(struct ll_data *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		slot_unref(d->vec[i].slot);
	d->n = 0;
	d->len = 0;
}

/* TCP receives into any memory, an RDMA card only into registered memory. An rpc does not use the
 * caller's memory after it has returned. */
bool read_lands_directly(const struct client *c, const void *base, uint64_t len)
{
	return transport_lands(c->transport, base, len);
}

/* Like read_parts, but receives what is not prefetched directly into the caller's memory. */
static int read_parts_into(struct ll_file *f, uint64_t off, uint32_t len, uint8_t *to,
			   struct block_sums *sums)
{
	bool ahead = reads_ahead(f);
	uint32_t done = 0;

	block_sums_clear(sums, off, len);
	while (done < len) {
		struct ll_data data;
		uint32_t left = len - done;
		uint64_t at = off + done;

		data.n = 0;
		data.len = 0;
		TRY(ahead ? ra_take(f->d, at, left, &data, sums) : 0);
		if (data.len > 0) {
			vec_copy_out(data.vec, data.n, to + done);
			done += (uint32_t)data.len;
			ll_data_release(&data);
			continue;
		}
		uint32_t part = ahead ? ra_gap(f->d, at, left) : left;
		/* Held only during the rpc, so its references are not counted. */
		struct slot user_memory = {.data = to + done, .size = part, .refs = 1};
		const struct slot_vec vec = {&user_memory, 0, part};

		TRY(fetch_range(f->d, at, &vec, NULL, sums));
		ASSERT(user_memory.refs == 1);
		done += part;
	}
	return 0;
}

static int read_own_into(struct ll_file *f, uint64_t off, uint32_t len, uint8_t *to,
			 struct block_sums *sums)
{
	for (;;) {
		uint64_t seen;
		bool own;

		TRY(wb_flush_visible_range(f->d, off, len));
		own = wb_pending(f->d, off, len);
		seen = f->c->n_retracted;
		TRY(read_parts_into(f, off, len, to, sums));
		if (!own || seen == f->c->n_retracted)
			return 0;
	}
}

/* Returns the number of bytes read, or a status. */
static int64_t read_into(struct ll_file *file, uint64_t off, uint32_t most, uint8_t *to,
			 struct block_sums *sums)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct attempt a = {.f = f};
	uint32_t len;
	int rc;

	TRY(check_read(f, off, most));
	do {
		attempt_begin(&a);
		len = most;
		TRY(read_begin(f, off, &len));
		TRY(len > 0 ? read_own_into(f, off, len, to, sums) : 0);
		rc = attempt_end(&a);
	} while (rc > 0);
	TRY(rc);
	f->c->stats.read_ops++;
	f->c->stats.read_bytes += len;
	return len;
}

struct pread_part {
	struct ll_file *f;
	uint8_t *to;
	uint64_t off;
	uint32_t len;
	struct block_sums *sums;
	int64_t done; /* bytes or a status */
};

static void pread_part(void *arg)
{
	struct pread_part *p = arg;
	struct ll_data data;
	int rc;

	if (read_lands_directly(p->f->c, p->to, p->len)) {
		p->done = read_into(p->f, p->off, p->len, p->to, p->sums);
		/* -LE_NOTSUP: an RDMA device has appeared since the check. */
		if (p->done != -LE_NOTSUP)
			return;
	}
	rc = read_slots(p->f, p->off, p->len, &data, p->sums);
	p->done = rc;
	if (rc < 0)
		return;
	vec_copy_out(data.vec, data.n, p->to);
	p->done = (int64_t)data.len;
	ll_data_release(&data);
}

int64_t read_with_sums(struct ll_file *f, void *buf, uint64_t len, uint64_t off,
		       struct block_sums *sums)
{
	struct pread_part parts[PREAD_WIDTH];
	uint64_t done = 0;

	while (done < len) {
		uint64_t at = done;
		uint32_t n = 0;

		for (; n < PREAD_WIDTH && at < len; n++) {
			/* Split where prefetched units are split. */
			uint64_t space = LL_IO_MAX - (off + at) % LL_IO_MAX;
			uint64_t take = len - at < space ? len - at : space;

			parts[n] = (struct pread_part){f,    (uint8_t *)buf + at, off + at,
						       (uint32_t)take, sums, 0};
			at += take;
		}
		if (n == 1)
			pread_part(&parts[0]);
		else
			fiber_parallel("ll_pread", pread_part, parts, sizeof(*parts), n, n);
		for (uint32_t i = 0; i < n; i++) {
			if (parts[i].done < 0)
				return done > 0 ? (int64_t)done : parts[i].done;
			done += (uint64_t)parts[i].done;
			if (parts[i].done < parts[i].len)
				return (int64_t)done;
		}
	}
	return (int64_t)done;
}

int64_t ll_pread(struct ll_file *f, void *buf, uint64_t len, uint64_t off)
{
	return read_with_sums(f, buf, len, off, NULL);
}
