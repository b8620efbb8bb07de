/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/attr_cache.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/servers/open_count.h"
#include "common/base/list.h"
#include "common/proto/types.h"
#include "common/rt/loop.h"

#define SECTOR          512u

static bool has_own_writes(const struct inode_io *d)
{
	return d != NULL && (d->coalesce.slot != NULL || !list_empty(&d->writes));
}

/* Returns true if this client has the file open for writing but the MDS had not recorded that open
 * when it sent this reply, because the session is new. Other clients can then truncate the file
 * without a recall here. */
static bool has_unreported_writes(const struct inode *i, const struct attr *attr)
{
	const struct inode_io *d = i->data;

	return d != NULL && d->n_write > 0 && (attr->flags & ATTR_UNSETTLED) == 0 &&
	       session_misses(d);
}

/* Raises the inode's own size to the reply's, or sets it if this client has written nothing. */
static void update_own_size(struct inode *i)
{
	struct inode_io *d = i->data;

	if (d == NULL)
		return;
	if (!has_own_writes(d) && (d->n_write == 0 || has_unreported_writes(i, &i->attr)))
		d->size = i->attr.size;
	else if (d->size < i->attr.size)
		d->size = i->attr.size;
}

/* Takes over a reply's attributes. Keeps the values that the chains reported last, if they are
 * still valid. */
static void take_attr(struct inode *i, const struct attr *attr, bool own)
{
	bool unsettled = (attr->flags & ATTR_UNSETTLED) != 0;

	if (unsettled && i->settled_us != 0 && !own && attr->layout.gen == i->attr.layout.gen &&
	    attr->n_truncations == i->attr.n_truncations) {
		/* Values from the chains stay valid until the chains are queried again, or until a
		 * truncation. */
		uint64_t size = i->attr.size, blocks = i->attr.blocks;
		int64_t written_ns = i->attr.chains_ns;

		i->attr = *attr;
		i->attr.size = size > attr->size ? size : attr->size;
		i->attr.blocks = blocks > attr->blocks ? blocks : attr->blocks;
		if (attr_chains_time(attr, written_ns))
			attr_take_written(&i->attr, written_ns);
	} else {
		i->attr = *attr;
		i->settled_us = 0;
	}
	i->attr.flags &= ~(uint32_t)(ATTR_LEASED | ATTR_SHARED | ATTR_TRUNCATING);
}

void inode_update(struct client *c, struct inode *i, const struct attr *attr, bool own,
		  uint64_t sent_us)
{
	uint64_t step = attr->change - i->attr.change;
	bool known = i->attr.ino.v != 0;
	/* A read lease is not accepted while the MDS has not recorded this client's write open: no
	 * recall would make this client flush its writes. */
	bool leased = (attr->flags & ATTR_LEASED) != 0 && !has_unreported_writes(i, attr);
	/* If the request was sent before this client's write open, its reply does not include that
	 * open. */
	bool unsettled = i->data != NULL && i->data->n_write > 0 && sent_us < i->recalled_us &&
			 (i->attr.flags & ATTR_UNSETTLED) != 0;

	/* Replies may arrive out of order. */
	if (known && (attr->change < i->attr.change ||
		      (attr->change == i->attr.change && attr->layout.gen < i->attr.layout.gen)))
		return;
	if (known && attr->change == i->attr.change && sent_us <= i->outdated_us)
		return;
	if (own && known && step <= 1 && i->open_change == i->attr.change)
		i->open_change = attr->change;
	if (i->data != NULL && known && !own &&
	    (attr->change != i->attr.change || attr->n_truncations != i->attr.n_truncations)) {
		ra_drop_all(i->data);
		/* The change may be a truncation by this client that had an unknown outcome. */
		i->data->size_unverified |= i->data->n_write > 0;
	}
	/* The size in the MDS's record is then the starting point. */
	if (leased && inode_size_is_unverified(i))
		i->settled_us = 0;
	i->attr_us = loop_now_us();
	if (!S_ISDIR(attr->mode))
		i->kernel_until_us = 0; /* only directories have names */
	/* Any writer, this client included, ends a read lease. */
	if ((attr->flags & ATTR_UNSETTLED) && !leased)
		i->lease_us = 0;
	take_attr(i, attr, own);
	i->attr.flags |= unsettled ? (uint32_t)ATTR_UNSETTLED : 0;
	lease_shared_update(c, i, attr, sent_us);
	if (leased)
		lease_given(c, i, sent_us);
	/* This client is the only writer: the record and its own writes give the true size. */
	if (leased && (attr->flags & ATTR_UNSETTLED) && lease_held(c, i) &&
	    !inode_size_is_unverified(i))
		i->settled_us = i->attr_us;
	update_own_size(i);
}

void inode_opened(struct inode *i, uint32_t flags)
{
	if ((flags & O_ACCMODE) != O_RDONLY)
		i->recalled_us = loop_now_us();
}

void inode_saw(struct client *c, const struct attr *attr, bool own, uint64_t sent_us)
{
	struct inode *i;

	if (attr->ino.v == 0)
		return;
	i = inode_get(c, attr->ino);
	if (i == NULL)
		return;
	inode_update(c, i, attr, own, sent_us);
	inode_put(c, i);
}

void inode_outdated(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);

	if (i == NULL)
		return;
	inode_changed_here(i);
	inode_put(c, i);
}

void inode_changed_here(struct inode *i)
{
	i->attr_us = 0;
	i->outdated_us = loop_now_us();
}

void inode_dir_changed(struct client *c, struct ino ino, const struct attr *attr, uint64_t sent_us)
{
	if (attr->ino.v == ino.v)
		inode_saw(c, attr, true, sent_us);
	else
		inode_outdated(c, ino);
}

bool inode_attr_fresh(const struct client *c, const struct inode *i)
{
	return i->attr_us != 0 && i->n_changing == 0 && lease_held(c, i);
}

bool inode_size_fresh(const struct client *c, const struct inode *i)
{
	return inode_attr_fresh(c, i) && !inode_size_is_unverified(i);
}

void inode_attr(const struct client *c, const struct inode *i, struct attr *ret_attr)
{
	const struct inode_io *d = i->data;
	int64_t own_ns;

	*ret_attr = i->attr;
	if (inode_size_fresh(c, i))
		ret_attr->flags |= ATTR_LEASED;
	if (d == NULL || !S_ISREG(i->attr.mode))
		return;
	if (d->size > ret_attr->size)
		ret_attr->size = d->size;
	own_ns = d->mtime_guess_ns > d->mtime_ns ? d->mtime_guess_ns : d->mtime_ns;
	if (attr_chains_time(ret_attr, own_ns))
		attr_take_written(ret_attr, own_ns);
	if (d->n_write > 0 || has_own_writes(d)) {
		uint64_t blocks = (ret_attr->size + SECTOR - 1) / SECTOR;

		/* The real number of blocks is unknown. It must only not be zero, because programs
		 * that copy files treat that as a hole. */
		if (d->sparse && blocks > 1)
			blocks = d->write_seq > 0 || has_own_writes(d);
		if (blocks > ret_attr->blocks)
			ret_attr->blocks = blocks;
	}
}
