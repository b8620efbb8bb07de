/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/lease_grant.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_return.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/servers/session.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Returns true if no lease was recalled or returned since the request was sent. */
static bool is_new(const struct client *c, const struct inode *i, uint64_t sent_us)
{
	bool old = sent_us <= i->recalled_us || sent_us <= c->leases.void_us ||
		   lease_return_is_newer(c, i->ino, sent_us);

	return !old || PLANTED_BUG(CLIENT_OLD_LEASE);
}

/* Queues a lease for return that was granted but not taken. If the queue is full, the MDS recalls
 * it later, without effect. */
static void not_taken(struct client *c, const struct inode *i)
{
	(void)lease_return_add(c, i->ino, i->kernel_attr_us);
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
	/* The chains' values may have become outdated unnoticed. With a shared lease they are
	 * queried each time. */
	i->settled_us = 0;
	i->attr.size = attr->size;
	i->attr.blocks = attr->blocks;
	i->attr.mtime_ns = attr->mtime_ns;
	i->attr.chains_ns = attr->chains_ns;
}

void lease_shared_end(struct client *c, struct inode *i)
{
	if ((i->shared_us == 0 && !i->data->was_shared) || lease_held(c, i))
		return;
	i->shared_us = 0;
	i->recalled_us = loop_now_us(); /* replies still in flight grant no lease */
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

void lease_invalidate(struct inode *i)
{
	i->lease_us = i->shared_us = 0;
	i->recalled_us = loop_now_us();
}

void lease_invalidate_data(struct client *c, struct inode *i)
{
	struct dropping *d;

	lease_invalidate(i);
	if (i->data != NULL)
		ra_drop_all(i->data);
	if (c->invalidate == NULL)
		return;
	/* In the background: the kernel may hold pages for the very request that led here, until it
	 * has its reply. */
	d = malloc(sizeof(*d));
	if (d != NULL) {
		*d = (struct dropping){c, i->ino};
		if (client_bg_spawn(c, "drop-pages", drop_fiber, d) == 0)
			return;
	}
	free(d);
	log_warn("client %s: out of memory: cached pages of inode %llu may be outdated until "
		 "they are evicted",
		 c->name, (unsigned long long)i->ino.v);
}

void lease_unshare(struct inode *i)
{
	i->shared_us = 0;
}

void lease_unshare_all(struct client *c)
{
	c->leases.unshared_us = loop_now_us();
}

/* Returns until when the kernel may use cached attributes, those from the previous process
 * included. */
static uint64_t kernel_attr_until(const struct client *c, const struct inode *i)
{
	uint64_t previous = c->previous_us + c->leases.term_us + KERNEL_ATTR_LATE_US;

	return i->kernel_attr_us > previous ? i->kernel_attr_us : previous;
}

bool kernel_has_attr(const struct client *c, const struct inode *i)
{
	return loop_now_us() < kernel_attr_until(c, i);
}

void lease_init(struct client *c)
{
	fmutex_init(&c->leases.reporting);
	lease_returns_init(&c->leases.lease_returns);
}

void lease_fini(struct client *c)
{
	lease_returns_fini(&c->leases.lease_returns);
}

void lease_on_evict(struct client *c, const struct inode *i)
{
	bool kernel_has = c->invalidate != NULL && kernel_has_attr(c, i);

	if (i->recalled_us > 0)
		lease_return_recalled(c, i->ino, i->recalled_us);
	/* The kernel drops names by itself. The lease of a directory is not returned while the
	 * kernel may have names of it; a recall waits until they have expired. */
	if (!lease_held(c, i) || c->stopping || loop_now_us() < i->kernel_until_us)
		return;
	if (lease_return_add(c, i->ino, kernel_has ? kernel_attr_until(c, i) : 0))
		return;
	if (kernel_has)
		c->invalidate(c->arg, i->ino, false);
}
