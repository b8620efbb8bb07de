/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/kernel_cache.h"

#include <stddef.h>

#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/servers/session.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

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
	/* Since the reply was sent, the directory may have got another lease, or the name another
	 * inode. */
	if (dentry_cache_find(c, i, name, &now) && ino_equal(now, ino)) {
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

/* Returns until when the kernel may cache a name that moves, and extends `to`'s time accordingly.
 * *ret_recalled: this client has a lease on `to`. */
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
