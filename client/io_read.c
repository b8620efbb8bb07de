/*
 * Reading: what is not prefetched is asked of the object servers, all chunks at once, straight
 * into a slot, unpacked and verified there. A checksum that is wrong may mean damage on the way or
 * on the disk: another member of the chain is asked, if there is one, to look itself, and either
 * sends good bytes or says that its copy is bad too, which is an I/O error and a line in the log.
 */
#include "client/chunk_lease.h"
#include "client/stripe.h"
#include "common/base/fault.h"
#include "common/base/log.h"

#define FETCH_PARTS  READ_CHUNKS_MAX
#define DAMAGE_TRIES 5
#define PREAD_WIDTH  8u

struct fetch_part {
	struct idata *d;
	struct stripe_part part;
	uint64_t chunk_at; /* where in the file the chunk begins */
	struct slot_vec to;
	struct ll_chunk_leases *leases; /* NULL: none is taken */
	struct block_sums *sums;        /* NULL: not wanted */
	struct route route;
	int status;
};

/* at: as pieces_hole says. */
static void note_hole(const struct fetch_part *p, uint32_t at)
{
	uint64_t off = p->chunk_at + p->part.off + at;

	if (at == p->part.len)
		return;
	p->d->n_holes++;
	if (p->leases != NULL && off < p->leases->hole)
		p->leases->hole = off;
}

/* What came is what was stored, and behind the end of the chunk is a hole up to the end of the
 * file. */
static int fetch_check(struct fetch_part *p, const struct oss_read_rep *rep, uint32_t bulk_len)
{
	struct pieces_in in = {
		.pieces = rep->pieces,
		.block_size = chunk_block_size(p->d->inode->attr.layout.chunk_size),
		.off = p->part.off,
		.room = p->part.len,
		.bulk_len = bulk_len,
		.data = p->to.slot->data + p->to.off,
		.scratch = p->d->c->block,
		.sums = p->sums,
		.chunk_at = p->chunk_at,
	};
	uint32_t len = 0;

	TRY(pieces_open(&in, &len));
	memset(in.data + len, 0, p->part.len - len);
	note_hole(p, pieces_hole(&in, len));
	return 0;
}

static void note_end(const struct fetch_part *p, uint32_t end)
{
	uint64_t at = p->chunk_at + end;

	if (end > 0 && at > p->leases->stored_end)
		p->leases->stored_end = at;
}

static void log_damage(const struct fetch_part *p, int status)
{
	log_write(status == -LE_CORRUPT ? LOG_ERROR : LOG_WARN,
		  "ino %llu chunk %llu on target %u: %s", (unsigned long long)p->d->inode->ino.v,
		  (unsigned long long)p->part.idx,
		  p->route.target != NULL ? p->route.target->id : 0, status_text(status));
}

static int fetch_once(struct fetch_part *p, uint32_t flags)
{
	struct client *c = p->d->c;
	struct oss_read_req req = {
		.chunk = {.ino = p->d->inode->ino, .idx = p->part.idx},
		.off = p->part.off,
		.len = p->part.len,
		.flags = flags,
		.lease = p->leases != NULL ? p->leases->number : 0,
	};
	struct oss_read_rep rep;
	struct rpc_call call = {
		.op = OP_oss_read,
		.req = &req,
		.rep = &rep,
		.bulk_in = &p->to,
		.n_bulk_in = 1,
	};
	struct io_auth auth = {.right = IO_READ, .cap = &req.cap, .gen = &req.chunk.gen};
	struct hedge hedge = {
		.c = c,
		.req = &req,
		.call = &call,
		.route = &p->route,
		.block_size = chunk_block_size(p->d->inode->attr.layout.chunk_size),
		.chunk_at = p->chunk_at,
		.sums = p->sums,
	};
	uint8_t *data = p->to.slot->data + p->to.off;
	uint32_t len;
	int rc;

	hedge_begin(&hedge);
	rc = io_call(p->d, p->part.idx, &call, &auth, &p->route);
	if (hedge_end(&hedge, &rc, data, &len)) {
		memset(data + len, 0, p->part.len - len);
		note_hole(p, hedge.hole);
	} else if (rc >= 0) {
		rc = fetch_check(p, &rep, call.ret_bulk_len);
	}
	if (rc >= 0 && p->leases != NULL)
		note_end(p, rep.end);
	rpc_call_fini(&call);
	if (rc == -LE_CORRUPT || rc == -LE_CORRUPT_WIRE) {
		c->stats.checksum_errors++;
		log_damage(p, rc);
	}
	return rc;
}

/* Damage on the way or in a member's store: asks again, another one where there is one, and lets
 * it look at what it has stored. */
static void fetch_part(void *arg)
{
	struct fetch_part *p = arg;
	uint32_t flags = 0;

	p->route = (struct route){.spread = io_spread(p->d->c, p->d->inode->ino, p->part.idx),
				  .head = p->leases != NULL};
	for (int tries = 0; tries < DAMAGE_TRIES; tries++) {
		p->status = fetch_once(p, flags);
		/* -LE_CORRUPT: in every copy. Whoever reads may want to know that it is that. */
		if (p->status != -LE_CORRUPT_WIRE)
			return;
		route_failed(&p->route, false);
		flags = READ_VERIFY;
	}
	p->status = -LE_IO;
}

int io_fetch(struct idata *d, uint64_t off, const struct slot_vec *to,
	     struct ll_chunk_leases *leases, struct block_sums *sums)
{
	struct stripe_part cut[FETCH_PARTS];
	struct fetch_part parts[FETCH_PARTS];
	uint64_t covered;
	uint32_t n;

	if (d->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	n = stripe_cut(d->inode->attr.layout.chunk_size, off, to->len, cut, FETCH_PARTS,
		       &covered);
	if (covered != to->len)
		return -LE_INVAL;
	for (uint32_t i = 0; i < n; i++) {
		parts[i] = (struct fetch_part){
			.d = d,
			.part = cut[i],
			.chunk_at = off + cut[i].at - cut[i].off,
			.to = {to->slot, to->off + (uint32_t)cut[i].at, cut[i].len},
			.leases = leases,
			.sums = sums,
		};
		if (leases != NULL)
			chunk_leases_add(leases, cut[i].idx);
	}
	if (n == 1)
		fetch_part(&parts[0]);
	else
		fiber_parallel("oss_read", fetch_part, parts, sizeof(*parts), n, n);
	for (uint32_t i = 0; i < n; i++)
		TRY(parts[i].status);
	return 0;
}

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
	/* What is gathered holds slots and goes away only when it is sent. */
	gather_submit_all(c, UINT64_MAX);
	rc = slot_get(c->slots, client_deadline(c), ret_slot);
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

static int read_direct(struct idata *d, uint64_t off, uint32_t len,
		       struct ll_chunk_leases *leases, struct ll_data *data,
		       struct block_sums *sums)
{
	struct slot_vec to = {NULL, 0, len};
	int rc;

	TRY(get_slot(d->c, len, &to.slot));
	rc = io_fetch(d, off, &to, leases, sums);
	if (rc < 0) {
		slot_unref(to.slot);
		return rc;
	}
	data->vec[data->n++] = to;
	data->len += len;
	return 0;
}

/* Without a lease others may change it at any time; what is shared is as long as its record says at
 * least, and perhaps longer. */
int io_read_size(struct ll_file *f, uint64_t enough, uint64_t *ret_size)
{
	struct cred cred;
	struct attr attr;

	inode_attr(f->c, f->inode, &attr);
	if ((attr.flags & (ATTR_SEALED | ATTR_LEASED)) == 0) {
		if (lease_shared(f->c, f->inode) && f->inode->shared_size >= enough) {
			*ret_size = f->inode->shared_size;
			return 0;
		}
		cred = io_renew_cred(f->d);
		TRY(io_attr(f->c, &cred, f->inode, &attr));
	}
	*ret_size = attr.size;
	return 0;
}

/* What was fetched before it was asked for may be old, unless there is a lease. */
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

/* What this client has written itself is seen, also when a server dies that had only accepted it:
 * then the read is repeated after the write has been. */
static int read_own(struct ll_file *f, uint64_t off, uint32_t len, struct ll_chunk_leases *leases,
		    struct ll_data *data, struct block_sums *sums)
{
	for (;;) {
		uint64_t seen;
		bool own;

		TRY(wb_show_range(f->d, off, len));
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
 * A file that somebody makes shorter loses bytes on the object servers before it is known to be
 * shorter: what had been read as far as it was believed to reach had holes then. So zeros that come
 * out of a hole count only if the file is known, afterwards, not to have been cut since before its
 * size was asked for: by a lease that was held all the time, or by the MDS. Else the size is asked
 * for again, and all is read again, when the cut is over. Reads that meet no hole ask nothing: what
 * is stored at that moment the file has.
 */
struct attempt {
	struct ll_file *f;
	uint64_t n_holes; /* of before it */
	uint32_t cuts;    /* of the attributes */
	struct io_patience patience;
	uint64_t until_us; /* with chunk leases: these must last by then */
};

static void attempt_begin(struct attempt *a)
{
	a->cuts = a->f->inode->attr.cuts;
	/* What was fetched ahead may have met holes long before. */
	a->n_holes = reads_ahead(a->f) ? 0 : a->f->d->n_holes;
}

/* Has the file been all the time as it was read? hole: was there one in what is to be returned? */
static int attempt_cut(const struct attempt *a, bool hole, enum io_cut *ret_cut)
{
	*ret_cut = CUT_NOT;
	if (!hole || FAULT(CLIENT_TRUST_HOLES))
		return 0;
	return io_cut_since(a->f->c, a->f->inode, a->cuts, ret_cut);
}

/* The same, and waits while it is being cut. 1: it is to be read again. */
static int attempt_end(struct attempt *a)
{
	enum io_cut cut;

	TRY(attempt_cut(a, a->n_holes != a->f->d->n_holes, &cut));
	if (cut == CUT_NOW)
		TRY(io_wait_uncut(a->f->c, &a->patience));
	return cut != CUT_NOT;
}

/* How much of it is there, and what will be asked for next? */
static int read_begin(struct ll_file *f, uint64_t off, uint32_t *len)
{
	uint64_t size;

	TRY(io_read_size(f, off + *len, &size));
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

/* Of what was asked for only so much is there. */
static void cut_data(struct ll_data *d, uint64_t len)
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

/* What is stored behind the size that was asked for first is there too, as far as there is no hole:
 * of two chunks the second one may have been read when more had been written to both. */
static uint64_t reaches(const struct ll_chunk_leases *leases, uint64_t size)
{
	uint64_t end = leases->hole < leases->stored_end ? leases->hole : leases->stored_end;

	return size < end ? end : size;
}

/* More than the file is said to have is asked for: by then it may be longer, and what is not there
 * will be shown as not there. */
static int read_under(struct ll_file *f, uint64_t off, uint32_t len, struct ll_chunk_leases *leases,
		      struct ll_data *data)
{
	uint64_t size;

	TRY(io_read_size(f, off + len, &size));
	TRY(read_own(f, off, len, leases, data, NULL));
	size = reaches(leases, size);
	cut_data(data, size > off ? size - off : 0);
	return 0;
}

/* 1: it is to be read again. While it is being cut nobody's leases may be in the way. What comes
 * when others may have written already (half the time is for who shows it) is asked for again, and
 * is no answer where that never is quick enough. */
static int read_once_leased(struct attempt *a, uint64_t off, uint32_t len, struct ll_data *data,
			    struct ll_chunk_leases **ret_leases)
{
	struct ll_chunk_leases *leases = chunk_leases_make(a->f->d);
	uint64_t late_us = loop_deadline_ms(CHUNK_LEASE_MS / 2);
	enum io_cut cut = CUT_NOT;
	int rc;

	if (leases == NULL)
		return -LE_NOMEM;
	data->n = 0;
	data->len = 0;
	attempt_begin(a);
	rc = len > 0 ? read_under(a->f, off, len, leases, data) : 0;
	if (rc >= 0)
		rc = attempt_cut(a, leases->hole < off + data->len, &cut);
	if (rc >= 0 && cut == CUT_NOT && loop_now_us() < late_us) {
		*ret_leases = leases;
		return 0;
	}
	if (rc >= 0 && cut == CUT_NOT && loop_now_us() >= a->until_us)
		rc = -LE_IO;
	ll_data_release(data);
	ll_release_leases(leases);
	if (rc >= 0 && cut == CUT_NOW)
		rc = io_wait_uncut(a->f->c, &a->patience);
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

/* ---- into the caller's memory ---- */

/* TCP writes to any memory; a card only to what is registered with it. What is lent to an rpc is
 * nobody's but the caller's when the rpc has ended, however it did. */
bool io_lands(const struct client *c, const void *base, uint64_t len)
{
	return transport_lands(c->transport, base, len);
}

/* As read_parts, but what is not prefetched is received where the caller wants it. */
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
		/* Only held while the rpc lasts, so that nobody counts its references. */
		struct slot lent = {.data = to + done, .size = part, .refs = 1};
		const struct slot_vec vec = {&lent, 0, part};

		TRY(io_fetch(f->d, at, &vec, NULL, sums));
		ASSERT(lent.refs == 1);
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

		TRY(wb_show_range(f->d, off, len));
		own = wb_pending(f->d, off, len);
		seen = f->c->n_retracted;
		TRY(read_parts_into(f, off, len, to, sums));
		if (!own || seen == f->c->n_retracted)
			return 0;
	}
}

/* As ll_read: how many bytes, or a status. */
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

	if (io_lands(p->f->c, p->to, p->len)) {
		p->done = read_into(p->f, p->off, p->len, p->to, p->sums);
		/* Else there is a device now that was not there when it was asked. */
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

int64_t io_pread(struct ll_file *f, void *buf, uint64_t len, uint64_t off, struct block_sums *sums)
{
	struct pread_part parts[PREAD_WIDTH];
	uint64_t done = 0;

	while (done < len) {
		uint64_t at = done;
		uint32_t n = 0;

		for (; n < PREAD_WIDTH && at < len; n++) {
			/* Cut where prefetched units are cut. */
			uint64_t room = LL_IO_MAX - (off + at) % LL_IO_MAX;
			uint64_t take = len - at < room ? len - at : room;

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
	return io_pread(f, buf, len, off, NULL);
}
