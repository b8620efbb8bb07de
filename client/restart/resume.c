/* SPDX-License-Identifier: Apache-2.0 */
#include "client/restart/resume.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/sync.h"
#include "client/data/write_error.h"
#include "client/ll.h"
#include "client/ops/open.h"
#include "client/servers/crash_replay.h"
#include "client/servers/mds_call.h"
#include "client/servers/request_slots.h"
#include "client/servers/restart_log.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/file_locks.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define RESUME_WIDTH    32u
#define LOCK_ENTRY_OF   1u /* mds_reclaim counts locks from 1 */

/* Called when data of this file that the previous process had acknowledged may be lost: makes each
 * open file report that. */
static void data_lost(struct client *c, struct inode_io *d, uint32_t at)
{
	log_warn("client %s: unsynced data of ino %llu may be lost: write it again", c->name,
		 (unsigned long long)d->inode->ino.v);
	d->mark = at + 1;
	c->restart->marks[at].state = MARK_LOST;
	wb_set_error(d, -LE_IO);
}

/* Returns true if everything that a server has accepted of the file is durable. A server that has
 * crashed since still has a record that it accepted data of the session, as long as the session
 * exists. Yields. */
static bool is_there(struct client *c, struct inode_io *d)
{
	bool lost;

	return !c->resumes_other && sync_accepted(d, false, &lost) >= 0 && !lost;
}

static void resume_data(struct client *c)
{
	for (uint32_t i = 0; i < LL_RESTART_MARKS; i++) {
		struct ll_restart_mark *m = &c->restart->marks[i];
		struct inode *in;

		if (m->state == MARK_CLEAN)
			continue;
		in = inode_peek(c, (struct ino){m->ino});
		if (in == NULL || in->data == NULL || in->data->n_write + in->data->n_read == 0) {
			if (m->state != MARK_VISIBLE)
				log_warn("client %s: unsynced data of ino %llu may be lost: it was "
					 "being closed",
					 c->name, (unsigned long long)m->ino);
			m->state = MARK_CLEAN;
		} else if (m->state == MARK_VISIBLE && is_there(c, in->data)) {
			m->state = MARK_CLEAN;
		} else {
			data_lost(c, in->data, i);
		}
		if (in != NULL)
			inode_put(c, in);
	}
}

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

/* A lock on a file that is no longer open here. */
struct orphaned_lock {
	struct list link;
	struct ino ino;
	struct file_lock lock;
};

/* One pass over the session's locks at the MDS. */
struct locks_pass {
	struct client *c;
	struct list strays;
	uint32_t n_pages, n_new;
};

static bool is_known(const struct inode_io *d, const struct file_lock *l)
{
	const struct held_lock *h = file_locks_own(&d->locks, 0, l);

	return h != NULL && h->lock.type == l->type && h->lock.first <= l->first &&
	       h->lock.last >= l->last;
}

static int note_orphaned(struct locks_pass *p, struct ino ino, const struct file_lock *l)
{
	struct orphaned_lock *s = malloc(sizeof(*s));

	if (s == NULL)
		return -LE_NOMEM;
	*s = (struct orphaned_lock){.ino = ino, .lock = *l};
	list_push(&p->strays, &s->link);
	return 0;
}

static int resume_lock(struct locks_pass *p, struct ino ino, const struct file_lock *l)
{
	struct inode *i = inode_peek(p->c, ino);
	bool open = i != NULL && i->data != NULL && i->data->n_read + i->data->n_write > 0;
	int rc = 0;

	if (!open) {
		rc = note_orphaned(p, ino, l);
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
		struct orphaned_lock *s = list_entry(n, struct orphaned_lock, link);
		struct mds_lock_req req = {.ino = s->ino, .lock = s->lock};
		struct mds_lock_rep rep;
		struct rpc_call call;

		req.lock.type = FILE_LOCK_NONE;
		if (mds_call(p->c, OP_mds_lock, &req, &rep, &call) < 0)
			log_warn("client %s: cannot release lock on ino %llu: it lasts until the "
				 "session ends",
				 p->c->name, (unsigned long long)s->ino.v);
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

/* Restores the locks from the MDS's list. The list is paged by number. This client releases nothing
 * while it reads the list, but other clients may move entries. So a list of several pages is read
 * until a pass finds nothing new. Yields. */
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
	struct cred cred = cap_renew_cred(r->i->data);

	r->status = size_request_attr(r->c, &cred, r->i);
	if (r->status == -LE_NOENT || r->status == -LE_STALE) {
		/* The file was removed with the previous session. Each use of it requests a
		 * capability, which is refused. */
		log_warn("client %s: open file with ino %llu is stale: %s", r->c->name,
			 (unsigned long long)r->i->ino.v, status_name(r->status));
		r->i->attr.layout.chunk_size = LL_IO_MAX;
		r->status = 0;
	}
	inode_put(r->c, r->i);
}

/* Fetches the attributes of all open files: every use of a file needs its layout. Yields. */
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
		v[n] = (struct resumed){c, list_entry(l, struct inode_io, open_link)->inode, 0};
		inode_ref(v[n++].i);
	}
	fiber_parallel("resume", resume_attr, v, sizeof(*v), n, RESUME_WIDTH);
	for (uint32_t k = 0; k < n && rc >= 0; k++)
		rc = v[k].status;
	free(v);
	return rc;
}

int restart_resume(struct client *c)
{
	if (c->settled_at_us == 0)
		return 0;
	TRY(resume_attrs(c));
	if (c->taking_over)
		TRY(resume_locks(c));
	resume_data(c);
	crash_replay_resumed(c);
	return 0;
}

/* Returns true if a fiber serves the kernel request. The fiber may wait before it repeats the
 * change. */
static bool is_under_way(const struct client *c, uint64_t unique)
{
	list_for_each (l, &c->requests)
		if (list_entry(l, struct ll_request, link)->unique == unique)
			return true;
	return false;
}

/* Releases the previous process's request slots if the kernel has not repeated their requests.
 * Returns false if one is still being served. Does not yield. */
static bool drop_previous_calls(struct client *c)
{
	bool all = true;

	for (uint32_t i = 0; i < LL_RESTART_CALLS; i++) {
		struct ll_restart_call *k = &c->restart->calls[i];

		if (k->unique == 0 || k->generation == c->restart->generation)
			continue;
		if (is_under_way(c, k->unique)) {
			all = false;
			continue;
		}
		k->unique = 0;
		request_slot_release(&c->mds_seqs, i);
	}
	return all;
}

/* Ends the work that the previous process had begun and the kernel has not repeated. */
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
	if (rc < 0 || !drop_previous_calls(c))
		c->settled_at_us = loop_now_us() + SETTLED_US;
	client_bg_end(c);
}

void restart_resume_tick(struct client *c)
{
	if (c->settled_at_us == 0 || loop_now_us() < c->settled_at_us)
		return;
	c->settled_at_us = 0;
	if (client_bg_spawn(c, "settle", settle_fiber, c) < 0)
		c->settled_at_us = loop_now_us() + SETTLED_US;
}
