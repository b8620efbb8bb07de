/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/lease/lease_check.h"

#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "mds/access/exports_policy.h"

uint64_t lease_term_us(const struct mds *m)
{
	/* The margin of 10 % is for clocks that run at different rates. */
	return m->params.client_lease_ms * 1100ull;
}

bool leases_known(const struct mds *m)
{
	return m->recovery.sessions_back || loop_now_us() >= m->start_us + lease_term_us(m);
}

const struct session *lease_spared(const struct op *op)
{
	return op->recall_own ? NULL : op->session;
}

static int is_unsettled(const struct op *op, struct ino ino)
{
	const struct inode_rec *rec;
	struct inode *i;
	int rc = inode_get(op->store, ino, VIEW_NEWEST, &i, &rec);

	return rc == -LE_MISS ? rc : rc == 0 && (rec->attr.flags & ATTR_UNSETTLED) != 0;
}

int lease_is_hidden(const struct op *op, struct ino ino)
{
	const struct open_file *f = open_file_find(&op->m->opens, ino);
	bool appends = (op->recall_modes & LEASE_APPEND) != 0;
	bool written = f != NULL && f->n_writers > 0;
	uint32_t n_here = op->session != NULL && op->session->from_store;

	if (PLANTED_BUG(MDS_UNHIDDEN))
		return 0;
	if (!appends && !leases_known(op->m))
		return 1;
	/* The session of the request counts as returned, except for a truncation that the previous
	 * incarnation began: another program of that client may append. */
	if (appends && f != NULL && f->truncation == TRUNCATION_TRIMS)
		n_here = 0;
	if (op->m->sessions.n_from_store <= n_here) /* no session is missing */
		return 0;
	if (written && !(appends && f->had_writers))
		return 0;
	return is_unsettled(op, ino);
}

static int leased(struct op *op, const struct ino *inos, uint32_t n, unsigned modes)
{
	op->n_recall = 0;
	op->recall_own = false;
	op->recall_modes = modes;
	for (uint32_t i = 0; i < n && !PLANTED_BUG(MDS_NO_RECALL); i++) {
		if (lease_is_hidden(op, inos[i]) != 0 ||
		    lease_foreign(&op->m->leases, inos[i], op->session, modes))
			op->recall[op->n_recall++] = inos[i];
		ASSERT(op->n_recall <= ARRAY_SIZE(op->recall));
	}
	return op->n_recall > 0 ? -LE_LEASED : 0;
}

int op_changes_all(struct op *op, const struct ino *inos, uint32_t n)
{
	return leased(op, inos, n, LEASE_CACHING);
}

int op_looks(struct op *op, const struct attr *a)
{
	/* A settled file has no writer, so no session has a write lease on it, even from before
	 * a restart. */
	return (a->flags & ATTR_UNSETTLED) != 0 ? leased(op, &a->ino, 1, LEASE_WRITE) : 0;
}

int op_asks_own(struct op *op, struct ino ino, struct ino reported_ino)
{
	if (ino_equal(ino, reported_ino) || reported_ino.v == REPORTED_ALL || op->session == NULL ||
	    (lease_modes(&op->m->leases, ino, op->session) & LEASE_CACHING) == 0)
		return 0;
	op->recall[0] = ino;
	op->n_recall = 1;
	op->recall_modes = LEASE_CACHING;
	op->recall_own = true;
	return -LE_LEASED;
}

static bool is_present(const struct inode *i, const struct attr *a)
{
	const struct attr *d = &i->durable.attr;

	/* A read advances the access time but not the change counter. */
	return !i->o.in[0] && !i->o.in[1] && d->change == a->change && d->flags == a->flags &&
	       d->layout.gen == a->layout.gen && d->atime_ns == a->atime_ns &&
	       d->mtime_ns == a->mtime_ns;
}

/* True if only this session has the file open, has it open for writing, and has made all changes
 * of the data since the file was settled. Its client can then compute the size. */
static bool writes_alone(const struct open *o)
{
	const struct open_file *f = o->file;

	/* After a takeover the new process does not have what the previous one wrote. */
	return o->n_write > 0 && o->n_write == f->n_writers && o->n_read == f->n_readers &&
	       o->old_write == 0 && (size_is_exclusive(f) || PLANTED_BUG(MDS_LEASE_ALONE));
}

/* True if the session may get a lease on an inode with writers. It must have the file open: then
 * no other session has a write lease, and all data is on the chains. After a restart sessions
 * that have not returned may have one, so this is false until all have returned. *ret_alone: it
 * may be a write lease. */
static bool may_share(struct op *op, const struct attr *a, bool *ret_alone)
{
	const struct open *o = open_find(&op->m->opens, op->session, a->ino);

	if (o == NULL || o->n_read + o->n_write == o->assumed || !op->m->recovery.sessions_back)
		return false;
	*ret_alone = writes_alone(o);
	return true;
}

void op_lease(struct op *op, struct attr *a)
{
	struct mds *m = op->m;
	struct open_file *f;
	enum lease_mode mode = LEASE_READ;
	struct inode *i;
	bool unsettled = (a->flags & ATTR_UNSETTLED) != 0, write = false;

	if (op->session == NULL || op->session->ended || op->session->peer == NULL ||
	    a->ino.v == 0 || a->nlink == 0 || !export_may_lease(op, a) ||
	    inode_get(op->store, a->ino, VIEW_DURABLE, &i, NULL) < 0 || !is_present(i, a))
		return;
	f = open_file_find(&m->opens, a->ino);
	if (f != NULL && f->busy.held)
		return;
	if (unsettled && !may_share(op, a, &write))
		return;
	if (lease_foreign(&m->leases, a->ino, op->session, write ? LEASE_CACHING : LEASE_WRITE))
		return;
	if (unsettled)
		mode = write ? LEASE_WRITE : LEASE_SHARED;
	/* The reply that gave the session a write lease may still be in flight: keep the lease
	 * marked as such, so that it is recalled as a write lease. */
	if (unsettled && (lease_modes(&m->leases, a->ino, op->session) & LEASE_WRITE) != 0)
		mode = LEASE_WRITE;
	if (!lease_give(&m->leases, op->session, a->ino, mode))
		return;
	a->flags |= unsettled && !write ? ATTR_SHARED : ATTR_LEASED;
	if (write)
		f->append_end = APPEND_END_UNKNOWN; /* its client appends without a reservation */
}
