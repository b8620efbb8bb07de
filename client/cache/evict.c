/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/evict.h"

#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"

void inode_on_evict(struct client *c, struct inode *i)
{
	lease_on_evict(c, i);
	if (i->kernel_until_us > c->kernel_lost_us)
		c->kernel_lost_us = i->kernel_until_us;
	dentry_cache_set_incomplete(c, i);
}
