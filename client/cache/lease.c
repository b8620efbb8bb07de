/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/lease.h"

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/servers/session.h"
#include "common/rt/loop.h"

bool lease_held_since(const struct client *c, const struct inode *i, uint64_t since_us)
{
	return i->lease_us != 0 && since_us >= i->lease_us && i->lease_us > c->leases.void_us &&
	       loop_now_us() < lease_until_us(c);
}

bool lease_held(const struct client *c, const struct inode *i)
{
	return lease_held_since(c, i, UINT64_MAX);
}
