#include "client/lease.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/delegation.h"
#include "client/io.h"
#include "common/base/fault.h"
#include "common/base/log.h"

/* The kernel forgets names by itself after so long, and a recall waits for that: short. It counts
 * from when the program that asked goes on, which may be later than when it was answered. */
#define KERNEL_NAMES_US 100000u
#define KERNEL_LATE_US  20000u
/* The same of attributes: whether they are told to be forgotten once more matters little. */
#define KERNEL_ATTR_LATE_US 1000000u
/* Who is left alone with a file that was shared asks once in this time, and gets a write lease. */
#define SHARED_AGAIN_US 1000000u

void lease_heard(struct client *c, uint64_t sent_us)
{
	struct client_leases *ls = &c->leases;

	if (sent_us > ls->heard_us)
		ls->heard_us = sent_us;
	if (loop_now_us() < lease_until_us(c))
		ls->lapsed = false;
}

uint64_t lease_until_us(const struct client *c)
{
	return c->leases.heard_us + c->leases.term_us;
}

bool lease_held_since(const struct client *c, const struct inode *i, uint64_t since_us)
{
	return i->lease_us != 0 && since_us >= i->lease_us && i->lease_us > c->leases.void_us &&
	       loop_now_us() < lease_until_us(c);
}

bool lease_held(const struct client *c, const struct inode *i)
{
	return lease_held_since(c, i, UINT64_MAX);
}

/* Nothing has been recalled or given back since. */
static bool is_new(const struct client *c, const struct inode *i, uint64_t sent_us)
{
	bool old = sent_us <= i->recalled_us || sent_us <= c->leases.void_us ||
		   departed_since(c, i->ino, sent_us);

	return !old || FAULT(CLIENT_OLD_LEASE);
}

/* The MDS may believe that it is here. If there is no room, it is recalled in vain some day. */
static void not_taken(struct client *c, const struct inode *i)
{
	(void)departed(c, i->ino, i->kernel_attr_us);
}

void lease_given(struct client *c, struct inode *i, uint64_t sent_us)
{
	if (lease_held(c, i))
		return;
	if (is_new(c, i, sent_us))
		i->lease_us = sent_us;
	else if (i->data == NULL)
		not_taken(c, i);
}

/* ---- files that several have open ---- */

/* As the MDS counts them; what is being closed it may have forgotten already. */
static bool is_counted(const struct idata *d)
{
	return d != NULL && d->n_read + d->n_write > d->n_closing;
}

bool lease_shared_lasts(const struct client *c, const struct inode *i)
{
	return i->shared_us > c->leases.unshared_us && loop_now_us() < lease_until_us(c);
}

void lease_shared_update(struct client *c, struct inode *i, const struct attr *attr,
			 uint64_t sent_us)
{
	bool shared = (attr->flags & ATTR_SHARED) != 0;

	if (i->data != NULL)
		i->data->was_shared |= i->shared_us != 0 || shared;
	i->shared_us = 0;
	if (!shared)
		return;
	if (!is_new(c, i, sent_us)) {
		if (i->data == NULL)
			not_taken(c, i);
		return;
	}
	i->shared_us = sent_us;
	i->shared_size = attr->size;
	/* What the chains said before may have been cut or set since, unnoticed: they are asked
	 * each time. */
	i->settled_us = 0;
	i->attr.size = attr->size;
	i->attr.blocks = attr->blocks;
	i->attr.mtime_ns = attr->mtime_ns;
	i->attr.chains_ns = attr->chains_ns;
}

static void reask_fiber(void *arg)
{
	struct idata *d = arg;
	struct client *c = d->c;
	struct inode *i = d->inode;
	struct cred cred = io_renew_cred(d);
	int rc = io_ask_attr(c, &cred, i);

	if (rc < 0) /* whoever has to know asks */
		log_debug("client %s: ino %llu: %s", c->name, (unsigned long long)i->ino.v,
			  status_name(rc));
	d->reasking = false;
	inode_put(c, i);
	client_bg_end(c);
}

static void reask(struct client *c, struct inode *i)
{
	struct idata *d = i->data;

	if (d->reasking || loop_now_us() < i->attr_us + SHARED_AGAIN_US || c->stopping)
		return;
	d->reasking = true;
	inode_ref(i);
	if (client_bg_spawn(c, "reask", reask_fiber, d) == 0)
		return;
	d->reasking = false;
	inode_put(c, i);
}

bool lease_shared(struct client *c, struct inode *i)
{
	if (!lease_shared_lasts(c, i) || i->attr_us == 0 || i->n_changing > 0 ||
	    !is_counted(i->data))
		return false;
	reask(c, i);
	return true;
}

void lease_shared_end(struct client *c, struct inode *i)
{
	if ((i->shared_us == 0 && !i->data->was_shared) || lease_held(c, i))
		return;
	i->shared_us = 0;
	i->recalled_us = loop_now_us(); /* what is still on its way gives none */
	not_taken(c, i);
}

struct dropping {
	struct client *c;
	struct ino ino;
};

static void drop_fiber(void *arg)
{
	struct dropping *d = arg;
	struct client *c = d->c;

	c->invalidate(c->arg, d->ino, true);
	free(d);
	client_bg_end(c);
}

void lease_doubted(struct inode *i)
{
	i->lease_us = i->shared_us = 0;
	i->recalled_us = loop_now_us();
}

void lease_data_doubted(struct client *c, struct inode *i)
{
	struct dropping *d;

	lease_doubted(i);
	if (i->data != NULL)
		ra_drop_all(i->data);
	if (c->invalidate == NULL)
		return;
	/* Not before the answer of who asked for it, for whom the kernel may hold pages. */
	d = malloc(sizeof(*d));
	if (d != NULL) {
		*d = (struct dropping){c, i->ino};
		if (client_bg_spawn(c, "drop-pages", drop_fiber, d) == 0)
			return;
	}
	free(d);
	log_warn("client %s: ino %llu: no memory to drop what the kernel has of it", c->name,
		 (unsigned long long)i->ino.v);
}

void lease_unshare(struct inode *i)
{
	i->shared_us = 0;
}

void lease_unshare_all(struct client *c)
{
	c->leases.unshared_us = loop_now_us();
}

/* ---- the end of all ---- */

/* Inodes of which the kernel may have pages: whatever was open. What it has of attributes and names
 * it was given for no longer than the leases hold. */
struct forgetting {
	struct client *c;
	uint32_t n;
	struct ino inos[];
};

static void forget_pages(void *arg)
{
	struct forgetting *fg = arg;
	struct client *c = fg->c;

	for (uint32_t k = 0; k < fg->n && !c->stopping; k++)
		c->invalidate(c->arg, fg->inos[k], true);
	free(fg);
	client_bg_end(c);
}

static int forget_pages_start(struct client *c)
{
	struct inode_table *t = &c->inodes;
	struct forgetting *fg = malloc(sizeof(*fg) + t->map.n * sizeof(fg->inos[0]));
	int rc;

	if (fg == NULL)
		return -LE_NOMEM;
	fg->c = c;
	fg->n = 0;
	for (struct hmap_node *n = hmap_next(&t->map, NULL); n != NULL; n = hmap_next(&t->map, n)) {
		const struct inode *i = container_of(n, struct inode, node);

		if (i->opened)
			fg->inos[fg->n++] = i->ino;
	}
	rc = client_bg_spawn(c, "forget-pages", forget_pages, fg);
	if (rc < 0)
		free(fg);
	return rc;
}

static void void_all(struct client *c, bool goes_on)
{
	if (FAULT(CLIENT_KEEP_LEASE))
		return;
	c->leases.void_us = loop_now_us();
	if (!goes_on)
		lease_unshare_all(c);
	list_for_each (l, &c->inodes.open)
		ra_drop_all(list_entry(l, struct idata, open_link));
	if (c->invalidate != NULL && forget_pages_start(c) < 0)
		log_error("client %s: cached pages may be old: out of memory", c->name);
}

/* How long the kernel may answer with attributes that it was given, perhaps by a former process. */
static uint64_t kernel_attr_until(const struct client *c, const struct inode *i)
{
	uint64_t former = c->former_us + c->leases.term_us + KERNEL_ATTR_LATE_US;

	return i->kernel_attr_us > former ? i->kernel_attr_us : former;
}

static bool kernel_has_attr(const struct client *c, const struct inode *i)
{
	return loop_now_us() < kernel_attr_until(c, i);
}

/* The MDS does not know any more that they would have to be recalled. Pages are dropped behind
 * this: that may wait for requests that wait for the session. */
static void forget_attrs(struct client *c)
{
	struct inode_table *t = &c->inodes;

	if (c->invalidate == NULL)
		return;
	for (struct hmap_node *n = hmap_next(&t->map, NULL); n != NULL; n = hmap_next(&t->map, n)) {
		const struct inode *i = container_of(n, struct inode, node);

		if (i->lease_us > c->leases.void_us && kernel_has_attr(c, i))
			c->invalidate(c->arg, i->ino, false);
	}
	departures_invalidate(c);
}

void lease_void_all(struct client *c, uint32_t lease_ms, bool goes_on)
{
	goes_on = goes_on && loop_now_us() < lease_until_us(c);
	c->leases.term_us = (uint64_t)lease_ms * 1000;
	forget_attrs(c);
	void_all(c, goes_on);
	while (loop_now_us() < c->kernel_until_us)
		if (fiber_sleep_us(c->kernel_until_us - loop_now_us()) < 0)
			break;
}

/* ---- the end of one ---- */

void lease_init(struct client *c)
{
	fmutex_init(&c->leases.telling);
	departures_init(&c->leases.departures);
}

void lease_fini(struct client *c)
{
	departures_fini(&c->leases.departures);
}

void lease_forgotten(struct client *c, const struct inode *i)
{
	bool kernel_has = c->invalidate != NULL && kernel_has_attr(c, i);

	if (i->recalled_us > 0)
		departed_recalled(c, i->ino, i->recalled_us);
	/* Names go from the kernel by themselves, so a directory whose names it has just been given
	 * is recalled some day. */
	if (!lease_held(c, i) || c->stopping || loop_now_us() < i->kernel_until_us)
		return;
	if (departed(c, i->ino, kernel_has ? kernel_attr_until(c, i) : 0))
		return;
	if (kernel_has)
		c->invalidate(c->arg, i->ino, false);
}

void lease_tick(struct client *c)
{
	struct client_leases *ls = &c->leases;

	if (!ls->lapsed && ls->heard_us != 0 && loop_now_us() >= lease_until_us(c)) {
		ls->lapsed = true;
		void_all(c, false);
	}
	departures_tick(c);
}

/* ---- own changes ---- */

void changing_begin(struct client *c, struct changing *ch, struct ino ino)
{
	*ch = (struct changing){.c = c};
	changing_also(ch, ino);
}

void changing_also(struct changing *ch, struct ino ino)
{
	struct inode *i = inode_get(ch->c, ino);

	ASSERT(ch->n < ARRAY_SIZE(ch->inodes));
	if (i == NULL)
		return; /* then nothing is cached of it either */
	i->n_changing += FAULT(CLIENT_OWN_CACHE) ? 0 : 1;
	ch->inodes[ch->n++] = i;
}

/* One of the directory's changes under way is only that of a name. */
static void only_name(struct changing *ch, struct ino dir, struct bytes name)
{
	ASSERT(ch->n_names < ARRAY_SIZE(ch->names));
	for (uint32_t k = 0; k < ch->n; k++) {
		if (!ino_equal(ch->inodes[k]->ino, dir))
			continue;
		ch->inodes[k]->n_names_changing++;
		ch->dirs[ch->n_names] = ch->inodes[k];
		names_change_begin(ch->c, &ch->names[ch->n_names++], dir, name);
		return;
	}
}

struct ino changing_name(struct changing *ch, struct ino dir, struct bytes name)
{
	struct ino ino = {0};

	if (!FAULT(CLIENT_OWN_CACHE))
		only_name(ch, dir, name);
	if (names_peek(ch->c, dir, name, &ino) && ino.v != 0)
		changing_also(ch, ino);
	if (!FAULT(CLIENT_OWN_CACHE))
		names_forget(ch->c, dir, name);
	return ino;
}

int changing_tell(struct changing *ch, struct ino ino, struct ino *ret_told)
{
	struct client_leases *ls = &ch->c->leases;

	*ret_told = ino;
	if (ino.v == 0 && ls->n_untold == 0) {
		ret_told->v = TOLD_ALL;
		ch->blind = true;
		ls->n_blind++;
	}
	for (uint32_t k = 0; k < ch->n; k++)
		if (ino_equal(ch->inodes[k]->ino, ino))
			return delegation_tell(ch->c, ch->inodes[k]);
	return 0;
}

void changing_end(struct changing *ch, int rc)
{
	ch->c->leases.n_blind -= ch->blind ? 1 : 0;
	while (ch->n_names > 0) {
		names_change_end(&ch->names[--ch->n_names]);
		ch->dirs[ch->n_names]->n_names_changing--;
	}
	while (ch->n > 0) {
		struct inode *i = ch->inodes[--ch->n];

		i->n_changing -= FAULT(CLIENT_OWN_CACHE) ? 0 : 1;
		if (rc < 0)
			names_incomplete(ch->c, i);
		if (rc == -LE_IO || rc == -LE_INTR || rc == -LE_SHUTDOWN)
			names_unsure(i);
		inode_put(ch->c, i);
	}
}

/* ---- what the kernel may cache ---- */

bool ll_leased(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	bool held = i != NULL && (lease_held(c, i) || inode_is_fixed(i));

	if (i != NULL)
		inode_put(c, i);
	return held;
}

static uint64_t remaining_us(const struct client *c)
{
	uint64_t now = loop_now_us(), until = lease_until_us(c);

	return until > now ? until - now : 0;
}

uint64_t ll_attr_us(struct client *c, const struct attr *attr)
{
	struct inode *i = (attr->flags & ATTR_LEASED) != 0 ? inode_peek(c, attr->ino) : NULL;
	uint64_t us, until;

	if (i == NULL)
		return 0;
	us = remaining_us(c);
	until = loop_now_us() + us + KERNEL_ATTR_LATE_US;
	if (until > i->kernel_attr_us)
		i->kernel_attr_us = until;
	inode_put(c, i);
	return us;
}

uint64_t ll_name_us(struct client *c, struct ino dir, struct bytes name, struct ino ino)
{
	struct inode *i = inode_peek(c, dir);
	uint64_t us = 0, until;
	struct ino now;

	if (i == NULL)
		return 0;
	/* There may be another lease than when it was told, and another inode of that name. */
	if (names_find(c, i, name, &now) && ino_equal(now, ino)) {
		us = remaining_us(c);
		us = us < KERNEL_NAMES_US ? us : KERNEL_NAMES_US;
		until = loop_now_us() + us + KERNEL_LATE_US;
		if (until > i->kernel_until_us)
			i->kernel_until_us = until;
		if (until > c->kernel_until_us)
			c->kernel_until_us = until;
	}
	inode_put(c, i);
	return us;
}

/* When the kernel does not believe a name any more that has gone there. */
static uint64_t moved_until(struct client *c, struct ino from, struct ino to, bool *ret_recalled)
{
	struct inode *f = inode_peek(c, from), *t = inode_peek(c, to);
	uint64_t until = f != NULL ? f->kernel_until_us : 0;

	if (t != NULL && t->kernel_until_us < until)
		t->kernel_until_us = until;
	*ret_recalled = t != NULL && lease_held(c, t);
	if (f != NULL)
		inode_put(c, f);
	if (t != NULL)
		inode_put(c, t);
	return until;
}

void lease_name_moves(struct client *c, struct ino from, struct ino to)
{
	bool recalled;

	(void)moved_until(c, from, to, &recalled);
}

void lease_name_moved(struct client *c, struct ino from, struct ino to)
{
	bool recalled;
	uint64_t until = moved_until(c, from, to, &recalled);

	while (!recalled && loop_now_us() < until)
		if (fiber_sleep_us(until - loop_now_us()) < 0)
			return;
}

/* ---- recall ---- */

static int recall_known(struct inode *i)
{
	uint64_t now = loop_now_us();
	int rc = 0;

	i->lease_us = i->shared_us = 0;
	i->recalled_us = now;
	i->attr_us = 0;
	i->settled_us = 0;
	if (i->data != NULL) {
		ra_drop_all(i->data);
		rc = io_show(i->data);
	}
	/* Names that the kernel was given go when their time is over: asking it to forget them
	 * would wait for a lock that a request of ours may hold, which waits for this recall. */
	while (rc >= 0 && loop_now_us() < i->kernel_until_us)
		rc = fiber_sleep_us(i->kernel_until_us - loop_now_us());
	return rc;
}

/* Ends the reference. */
static int told_opens(struct client *c, struct inode *i)
{
	int rc = delegation_tell(c, i);

	inode_put(c, i);
	return rc;
}

int lease_recall(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	bool data = true;
	int rc = 0;

	waitq_wake_all(&c->company);
	if (i != NULL) {
		/* What a former process had open may have pages before anything is known of it. */
		data = i->attr.mode == 0 || S_ISREG(i->attr.mode);
		rc = recall_known(i);
		/* Given meanwhile for a request of before. */
		i->lease_us = i->shared_us = 0;
		i->recalled_us = loop_now_us();
	} else {
		departed_recalled(c, ino, loop_now_us());
		while (rc >= 0 && loop_now_us() < c->kernel_lost_us)
			rc = fiber_sleep_us(c->kernel_lost_us - loop_now_us());
	}
	if (i != NULL)
		TRY(told_opens(c, i));
	if (rc < 0 && rc != -LE_INTR)
		log_debug("client %s: recall of ino %llu: %s", c->name, (unsigned long long)ino.v,
			  status_name(rc));
	if (c->invalidate != NULL)
		c->invalidate(c->arg, ino, data);
	return rc == -LE_INTR ? rc : 0;
}

int lease_owner_changed(struct client *c, struct ino ino)
{
	struct inode *i = c->owner_changed != NULL ? inode_peek(c, ino) : NULL;
	bool open;

	if (i == NULL)
		return 0;
	open = i->n_held > 0 || (i->data != NULL && i->data->n_files > 0);
	inode_put(c, i);
	return open ? c->owner_changed(c->arg, ino) : 0;
}
