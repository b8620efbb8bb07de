/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/recall.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/cache/lease_return.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/append.h"
#include "client/data/write.h"
#include "client/ops/delegated_open.h"
#include "client/servers/session.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* The inodes that the kernel may cache pages of: all that were opened. Attributes and names expire
 * with the leases, because the kernel caches them no longer than the leases last. */
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
	if (PLANTED_BUG(CLIENT_KEEP_LEASE))
		return;
	c->leases.void_us = loop_now_us();
	if (!goes_on)
		lease_unshare_all(c);
	list_for_each (l, &c->inodes.open)
		ra_drop_all(list_entry(l, struct inode_io, open_link));
	if (c->invalidate != NULL && forget_pages_start(c) < 0)
		log_error("client %s: out of memory: cached pages may be outdated until they are "
			  "evicted",
			  c->name);
}

/* Makes the kernel drop attributes, which the MDS would no longer recall. Pages are dropped in the
 * background, because that may wait for requests that wait for the session. */
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
	lease_returns_invalidate(c);
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

void lease_tick(struct client *c)
{
	struct client_leases *ls = &c->leases;

	if (!ls->lapsed && ls->last_contact_us != 0 && loop_now_us() >= lease_until_us(c)) {
		ls->lapsed = true;
		void_all(c, false);
	}
	lease_returns_tick(c);
}

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
		rc = PLANTED_BUG(CLIENT_KEEP_DATA) ? 0 : flush_visible(i->data);
	}
	/* Names expire in the kernel by themselves. Invalidating them would wait for a lock that a
	 * request of this client may hold, which waits for this recall. */
	while (rc >= 0 && loop_now_us() < i->kernel_until_us)
		rc = fiber_sleep_us(i->kernel_until_us - loop_now_us());
	return rc;
}

/* Reports a delegated open, and drops the reference. Yields. */
static int reported_opens(struct client *c, struct inode *i)
{
	int rc = delegation_report(c, i);

	inode_put(c, i);
	return rc;
}

static int recall_appends(struct client *c, struct ino ino, uint64_t change)
{
	struct inode *i = inode_peek(c, ino);
	int rc = i != NULL ? append_recall(i, change) : 0;

	if (i != NULL)
		inode_put(c, i);
	return rc;
}

static int recall_cached(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	bool data = true;
	int rc = 0;

	waitq_wake_all(&c->piggyback_q);
	if (i != NULL) {
		/* A file that the previous process had open may have pages before its attributes
		 * are fetched. */
		data = i->attr.mode == 0 || S_ISREG(i->attr.mode);
		rc = recall_known(i);
		/* The reply to an older request may have granted a lease during the wait. */
		i->lease_us = i->shared_us = 0;
		i->recalled_us = loop_now_us();
	} else {
		lease_return_recalled(c, ino, loop_now_us());
		while (rc >= 0 && loop_now_us() < c->kernel_lost_us)
			rc = fiber_sleep_us(c->kernel_lost_us - loop_now_us());
	}
	if (i != NULL)
		TRY(reported_opens(c, i));
	if (rc < 0 && rc != -LE_INTR)
		log_debug("client %s: recall of ino %llu: %s", c->name, (unsigned long long)ino.v,
			  status_name(rc));
	if (c->invalidate != NULL)
		c->invalidate(c->arg, ino, data);
	return rc == -LE_INTR ? rc : 0;
}

int lease_recall(struct client *c, const struct cb_recall_req *req)
{
	if ((req->modes & LEASE_APPEND) != 0)
		TRY(recall_appends(c, req->ino, req->change));
	if ((req->modes & LEASE_CACHING) == 0)
		return 0;
	return recall_cached(c, req->ino);
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
