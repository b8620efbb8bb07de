#include "client/kept.h"

#include <stdlib.h>

#include "client/io.h"
#include "client/reclaim.h"
#include "client/retry.h"
#include "common/base/log.h"

/* Sequences of one process are below those of the next. */
#define GENERATION_SHIFT 40
/* What a former process had begun has been repeated by then. */
#define SETTLED_US 5000000u
/* The kernel was given names for no longer than this by a former process. */
#define KERNEL_NAMES_US 120000u
#define RESUME_WIDTH    32u
#define LOCK_ENTRY_OF   1u /* mds_reclaim counts from 1 */

/* Stores in this order, whenever the process is ended: only this process' own order counts. */
#define KEPT_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* What a write, or an open that empties the file, takes away is no change of its own: it leaves the
 * number to what follows. Of a mode that says so as well. */
static bool takes_away(uint32_t mask)
{
	if ((mask & SET_KILL_SUID) != 0)
		mask &= ~(uint32_t)SET_MODE;
	return (mask & ~(uint32_t)(SET_KILL_SUID | SET_KILL_CAPS)) == 0;
}

/* Others may do something between the two: an answered fsync must not be undone by a truncation
 * that comes a second time. */
bool kept_must_be_once(uint16_t op, const void *req)
{
	static const uint16_t ops[] = {
		OP_mds_create,   OP_mds_tmpfile,     OP_mds_mknod, OP_mds_mkdir,     OP_mds_symlink,
		OP_mds_link,     OP_mds_unlink,      OP_mds_rmdir, OP_mds_rename,    OP_mds_append,
		OP_mds_setxattr, OP_mds_removexattr, OP_mds_copy,  OP_mds_fallocate,
	};

	if (op == OP_mds_setattr)
		return !takes_away(((const struct mds_setattr_req *)req)->mask);
	if (op == OP_mds_open)
		return (((const struct mds_open_req *)req)->flags & O_TRUNC) != 0;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (ops[i] == op)
			return true;
	return false;
}

/* ---- start ---- */

void kept_start(struct client *c)
{
	struct ll_kept *k = c->kept;

	turnq_init(&c->held_turn);
	list_init(&c->requests);
	if (k == NULL)
		return;
	k->generation++;
	c->seq_base = (uint64_t)k->generation << GENERATION_SHIFT;
	if (k->session == 0) {
		k->id = c->id;
		return;
	}
	c->id = k->id;
	c->session = k->session;
	c->incarnation = k->incarnation;
	c->session_gen = 1;
	c->taking_over = c->telling = c->resuming = true;
	c->former_us = loop_now_us();
	c->kernel_until_us = c->kernel_lost_us = c->former_us + KERNEL_NAMES_US;
	c->settled_at_us = loop_now_us() + SETTLED_US;
}

void kept_reserve(struct client *c)
{
	struct ll_kept *k = c->kept;

	for (uint32_t i = 0; k != NULL && i < LL_KEPT_CALLS; i++)
		if (k->calls[i].unique != 0 && !seq_take_slot(&c->mds_seqs, i))
			k->calls[i].unique = 0;
}

void kept_session(struct client *c)
{
	struct ll_kept *k = c->kept;

	if (k == NULL)
		return;
	c->resumes_other = k->session != c->session;
	k->incarnation = c->incarnation;
	KEPT_ORDER();
	k->session = c->session;
}

/* ---- changes ---- */

void ll_request_begin(struct ll_request *r, struct client *c, uint64_t unique)
{
	*r = (struct ll_request){.c = c, .unique = unique, .slot = -1};
	list_init(&r->link);
	if (c->kept != NULL)
		list_push(&c->requests, &r->link);
	fiber_set_local(r);
}

uint64_t ll_request_unique(void)
{
	const struct ll_request *r = fiber_local();

	return r != NULL ? r->unique : 0;
}

static void number_give(struct ll_request *r)
{
	struct client *c = r->c;

	if (r->slot < 0)
		return;
	c->kept->calls[r->slot].unique = 0;
	seq_give(&c->mds_seqs, (uint32_t)r->slot);
	r->slot = -1;
	r->repeats = false;
	c->n_held--;
	turnq_wake(&c->held_turn);
}

void ll_request_end(struct ll_request *r)
{
	struct client *c = r->c;

	fiber_set_local(NULL);
	if (!list_empty(&r->link))
		list_remove(&r->link);
	if (c->kept != NULL)
		number_give(r);
}

void kept_void(struct client *c)
{
	struct ll_request *r = c->kept != NULL ? fiber_local() : NULL;

	if (r != NULL)
		number_give(r);
}

/* The number that a former process has given to this very change. */
static int former_slot(const struct ll_kept *k, uint64_t unique, uint16_t op)
{
	for (int i = 0; i < LL_KEPT_CALLS; i++)
		if (k->calls[i].unique == unique && k->calls[i].op == op &&
		    k->calls[i].generation != k->generation)
			return i;
	return -1;
}

bool kept_has_former(const struct client *c, uint16_t op)
{
	const struct ll_request *r = c->kept != NULL ? fiber_local() : NULL;

	return r != NULL && r->slot < 0 && former_slot(c->kept, r->unique, op) >= 0;
}

bool kept_repeated(const struct client *c)
{
	struct ll_request *r = c->kept != NULL ? fiber_local() : NULL;
	bool repeated = r != NULL && r->repeats;

	if (repeated)
		r->repeats = false;
	return repeated;
}

/* The others are for what requests still need that have one already. */
static bool may_hold(void *arg)
{
	const struct client *c = arg;

	return c->n_held == 0 || c->n_held < c->mds_seqs.n / 4 * 3;
}

static int take_new(struct client *c, struct ll_request *r, uint16_t op, uint64_t deadline_us)
{
	struct ll_kept_call *call;
	uint32_t slot;
	uint64_t seq;

	TRY(turnq_wait(&c->held_turn, may_hold, c, NO_DEADLINE, deadline_us));
	c->n_held++;
	turnq_wake(&c->held_turn);
	int rc = seq_take(&c->mds_seqs, deadline_us, &slot, &seq);
	if (rc < 0) {
		c->n_held--;
		turnq_wake(&c->held_turn);
		return rc;
	}
	call = &c->kept->calls[slot];
	call->seq = seq;
	call->op = op;
	call->generation = c->kept->generation;
	KEPT_ORDER();
	call->unique = r->unique;
	r->slot = (int)slot;
	return 0;
}

int kept_take(struct client *c, uint16_t op, const void *req, uint64_t deadline_us,
	      uint32_t *ret_slot, uint64_t *ret_seq)
{
	struct ll_request *r = c->kept != NULL && kept_must_be_once(op, req) ? fiber_local() : NULL;
	int rc;

	if (r == NULL || r->slot >= 0)
		return seq_take(&c->mds_seqs, deadline_us, ret_slot, ret_seq);
	r->slot = former_slot(c->kept, r->unique, op);
	if (r->slot >= 0) {
		c->kept->calls[r->slot].generation = c->kept->generation;
		c->n_held++;
		r->repeats = true;
	} else {
		rc = take_new(c, r, op, deadline_us);
		if (rc < 0)
			return rc;
	}
	*ret_slot = (uint32_t)r->slot;
	*ret_seq = c->kept->calls[r->slot].seq;
	return 0;
}

void kept_give(struct client *c, uint32_t slot)
{
	const struct ll_request *r = c->kept != NULL ? fiber_local() : NULL;

	if (r == NULL || r->slot != (int)slot)
		seq_give(&c->mds_seqs, slot);
}

/* ---- data ---- */

bool kept_write_begin(struct idata *d)
{
	struct ll_kept *k = d->c->kept;

	if (k == NULL)
		return true;
	for (uint32_t i = 0; d->mark == 0 && i < LL_KEPT_MARKS; i++) {
		uint32_t at = d->c->next_mark++ % LL_KEPT_MARKS;

		if (k->marks[at].state == KEPT_CLEAN)
			d->mark = at + 1;
	}
	if (d->mark == 0)
		return false;
	k->marks[d->mark - 1].ino = d->inode->ino.v;
	KEPT_ORDER();
	if (k->marks[d->mark - 1].state != KEPT_LOST)
		k->marks[d->mark - 1].state = KEPT_WRITTEN;
	return true;
}

void kept_write_moved(struct idata *d)
{
	struct ll_kept_mark *m;

	if (d->mark == 0)
		return;
	m = &d->c->kept->marks[d->mark - 1];
	if (d->n_unheard != 0) {
		m->state = KEPT_LOST;
	} else if (wb_is_hidden(d)) {
		m->state = KEPT_WRITTEN;
	} else if (!list_empty(&d->writes)) {
		m->state = KEPT_SHOWN;
	} else {
		m->state = KEPT_CLEAN;
		d->mark = 0;
	}
}

void kept_write_end(struct idata *d)
{
	if (d->mark != 0)
		d->c->kept->marks[d->mark - 1].state = KEPT_CLEAN;
	d->mark = 0;
}

/* What the former process had accepted of this file may be lost: each who has it open is told. */
static void data_lost(struct client *c, struct idata *d, uint32_t at)
{
	log_warn("client %s: data of ino %llu that was not synced may be lost", c->name,
		 (unsigned long long)d->inode->ino.v);
	d->mark = at + 1;
	c->kept->marks[at].state = KEPT_LOST;
	wb_set_error(d, -LE_IO);
}

/* Is what a server had accepted of the file durable? A server that has crashed since knows that it
 * had something of the session, as long as there is that session. */
static bool is_there(struct client *c, struct idata *d)
{
	bool lost;

	return !c->resumes_other && io_sync(d, false, &lost) >= 0 && !lost;
}

static void resume_data(struct client *c)
{
	for (uint32_t i = 0; i < LL_KEPT_MARKS; i++) {
		struct ll_kept_mark *m = &c->kept->marks[i];
		struct inode *in;

		if (m->state == KEPT_CLEAN)
			continue;
		in = inode_peek(c, (struct ino){m->ino});
		if (in == NULL || in->data == NULL || in->data->n_write + in->data->n_read == 0) {
			if (m->state != KEPT_SHOWN)
				log_warn("client %s: data of ino %llu may be lost: it was being "
					 "closed",
					 c->name, (unsigned long long)m->ino);
			m->state = KEPT_CLEAN;
		} else if (m->state == KEPT_SHOWN && is_there(c, in->data)) {
			m->state = KEPT_CLEAN;
		} else {
			data_lost(c, in->data, i);
		}
		if (in != NULL)
			inode_put(c, in);
	}
}

/* ---- going on ---- */

int ll_resume_file(struct client *c, struct ino ino, const struct cred *cred, uint32_t flags,
		   struct ll_file **ret_file)
{
	struct inode *i = inode_get(c, ino);
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = file_resume(c, i, cred, flags, ret_file);
	if (rc < 0)
		inode_put(c, i);
	return rc;
}

void ll_resume_owner(struct ll_file *f, uint64_t owner)
{
	list_for_each (n, &f->d->locks.held) {
		struct held_lock *h = list_entry(n, struct held_lock, link);

		if (h->lock.owner == owner && h->via == 0)
			h->via = (uintptr_t)f;
	}
}

/* Of files that nobody has open any more. */
struct stray_lock {
	struct list link;
	struct ino ino;
	struct file_lock lock;
};

/* One pass over what the MDS has of the session's locks. */
struct locks_pass {
	struct client *c;
	struct list strays;
	uint32_t n_pages, n_new;
};

static bool is_known(const struct idata *d, const struct file_lock *l)
{
	const struct held_lock *h = file_locks_own(&d->locks, 0, l);

	return h != NULL && h->lock.type == l->type && h->lock.first <= l->first &&
	       h->lock.last >= l->last;
}

static int note_stray(struct locks_pass *p, struct ino ino, const struct file_lock *l)
{
	struct stray_lock *s = malloc(sizeof(*s));

	if (s == NULL)
		return -LE_NOMEM;
	*s = (struct stray_lock){.ino = ino, .lock = *l};
	list_push(&p->strays, &s->link);
	return 0;
}

static int resume_lock(struct locks_pass *p, struct ino ino, const struct file_lock *l)
{
	struct inode *i = inode_peek(p->c, ino);
	bool open = i != NULL && i->data != NULL && i->data->n_read + i->data->n_write > 0;
	int rc = 0;

	if (!open) {
		rc = note_stray(p, ino, l);
	} else if (!is_known(i->data, l)) {
		rc = file_locks_set(&i->data->locks, 0, 0, l);
		p->n_new++;
	}
	if (i != NULL)
		inode_put(p->c, i);
	return rc;
}

static void give_back_strays(struct locks_pass *p)
{
	struct list *n;

	while ((n = list_pop(&p->strays)) != NULL) {
		struct stray_lock *s = list_entry(n, struct stray_lock, link);
		struct mds_lock_req req = {.ino = s->ino, .lock = s->lock};
		struct mds_lock_rep rep;
		struct rpc_call call;

		req.lock.type = FILE_LOCK_NONE;
		if (mds_call(p->c, OP_mds_lock, &req, &rep, &call) < 0)
			log_warn("client %s: a lock on ino %llu stays", p->c->name,
				 (unsigned long long)s->ino.v);
		else
			p->n_new++;
		rpc_call_fini(&call);
		free(s);
	}
}

static int read_locks(struct locks_pass *p)
{
	uint32_t from = LOCK_ENTRY_OF;

	while (from != 0) {
		struct mds_reclaim_req req = {.locks_from = from};
		struct mds_reclaim_rep rep;
		struct rpc_call call;
		struct wire_r r;
		int rc = mds_call(p->c, OP_mds_reclaim, &req, &rep, &call);

		if (rc >= 0 && rep.locks_next != 0 && rep.locks_next <= from)
			rc = -LE_BAD_MESSAGE;
		from = rep.locks_next;
		p->n_pages++;
		wire_r_init(&r, rep.held.data, rc >= 0 ? rep.held.len : 0);
		while (rc >= 0 && !wire_r_end(&r)) {
			struct file_lock l;
			struct ino ino;

			wire_get_ino(&r, &ino);
			wire_get_file_lock(&r, &l);
			rc = r.status < 0 || !file_lock_valid(&l) ? -LE_BAD_MESSAGE : 0;
			if (rc >= 0)
				rc = resume_lock(p, ino, &l);
		}
		rpc_call_fini(&call);
		TRY(rc);
	}
	return 0;
}

/* Pages are told by number, so while they are read nothing is given back; what others do may still
 * move what is on them. Several are read until nothing new is found. */
static int resume_locks(struct client *c)
{
	struct locks_pass p = {.c = c};
	int rc;

	list_init(&p.strays);
	do {
		p.n_pages = p.n_new = 0;
		rc = read_locks(&p);
		give_back_strays(&p);
	} while (rc >= 0 && p.n_pages > 1 && p.n_new > 0);
	return rc;
}

struct resumed {
	struct client *c;
	struct inode *i;
	int status;
};

static void resume_attr(void *arg)
{
	struct resumed *r = arg;
	struct cred cred = io_renew_cred(r->i->data);

	r->status = io_ask_attr(r->c, &cred, r->i);
	if (r->status == -LE_NOENT || r->status == -LE_STALE) {
		/* It went with the former session. Whatever is tried with it asks for the right to,
		 * which is refused. */
		log_warn("client %s: open file, ino %llu: %s", r->c->name,
			 (unsigned long long)r->i->ino.v, status_name(r->status));
		r->i->attr.layout.chunk_size = LL_IO_MAX;
		r->status = 0;
	}
	inode_put(r->c, r->i);
}

/* Everything that is done with a file needs to know how it is laid out. */
static int resume_attrs(struct client *c)
{
	struct resumed *v;
	uint32_t n = 0;
	int rc = 0;

	list_for_each (l, &c->inodes.open)
		n++;
	v = malloc((n + 1) * sizeof(*v));
	if (v == NULL)
		return -LE_NOMEM;
	n = 0;
	list_for_each (l, &c->inodes.open) {
		v[n] = (struct resumed){c, list_entry(l, struct idata, open_link)->inode, 0};
		inode_ref(v[n++].i);
	}
	fiber_parallel("resume", resume_attr, v, sizeof(*v), n, RESUME_WIDTH);
	for (uint32_t k = 0; k < n && rc >= 0; k++)
		rc = v[k].status;
	free(v);
	return rc;
}

int kept_resume(struct client *c)
{
	if (c->settled_at_us == 0)
		return 0;
	TRY(resume_attrs(c));
	if (c->taking_over)
		TRY(resume_locks(c));
	resume_data(c);
	reclaim_resumed(c);
	return 0;
}

/* It may wait for long, as an append for a server, before it asks for its change again. */
static bool is_under_way(const struct client *c, uint64_t unique)
{
	list_for_each (l, &c->requests)
		if (list_entry(l, struct ll_request, link)->unique == unique)
			return true;
	return false;
}

/* False: somebody may ask for one of them yet. */
static bool drop_former_calls(struct client *c)
{
	bool all = true;

	for (uint32_t i = 0; i < LL_KEPT_CALLS; i++) {
		struct ll_kept_call *k = &c->kept->calls[i];

		if (k->unique == 0 || k->generation == c->kept->generation)
			continue;
		if (is_under_way(c, k->unique)) {
			all = false;
			continue;
		}
		k->unique = 0;
		seq_give(&c->mds_seqs, i);
	}
	return all;
}

/* What the former process had begun and nobody has asked for again is over. */
static void settle_fiber(void *arg)
{
	struct client *c = arg;
	struct mds_reclaim_req req = {.done = true};
	struct mds_reclaim_rep rep;
	struct rpc_call call;
	int rc = 0;

	if (c->taking_over) {
		rc = mds_call(c, OP_mds_reclaim, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	if (rc >= 0)
		c->taking_over = false;
	if (rc < 0 || !drop_former_calls(c))
		c->settled_at_us = loop_now_us() + SETTLED_US;
	client_bg_end(c);
}

void kept_tick(struct client *c)
{
	if (c->settled_at_us == 0 || loop_now_us() < c->settled_at_us)
		return;
	c->settled_at_us = 0;
	if (client_bg_spawn(c, "settle", settle_fiber, c) < 0)
		c->settled_at_us = loop_now_us() + SETTLED_US;
}
