/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/open_count.h"

#include <fcntl.h>
#include <string.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"

uint32_t *open_count_reopened(struct inode_io *d, uint32_t flags)
{
	if (d->reopened.gen != d->c->session_gen) {
		memset(&d->reopened, 0, sizeof(d->reopened));
		d->reopened.gen = d->c->session_gen;
	}
	if ((flags & O_ACCMODE) == O_RDONLY)
		return &d->reopened.n_read;
	return (flags & O_APPEND) != 0 ? &d->reopened.n_append : &d->reopened.n_write;
}

bool open_count_is_lost(const struct inode_io *d)
{
	return d->lost_gen == d->c->session_gen;
}

void session_opened(struct inode_io *d, uint32_t flags, uint64_t session)
{
	struct client *c = d->c;

	if ((!c->reopening && !open_count_is_lost(d)) || session != c->session)
		return;
	if (d->n_read + d->n_write + d->n_delegated == 0) {
		d->reopened_gen = c->session_gen; /* no locks either */
		d->lost_gen = 0;
	} else {
		++*open_count_reopened(d, flags);
	}
}

void session_closed(struct inode_io *d, uint32_t flags)
{
	uint32_t *n;

	if (!open_count_is_lost(d))
		return;
	n = open_count_reopened(d, flags);
	/* If the MDS has no open of exactly this kind, it closes a write open of the other kind. */
	if (*n == 0 && (flags & O_ACCMODE) != O_RDONLY)
		n = open_count_reopened(d, flags ^ O_APPEND);
	*n -= *n > 0;
}

bool open_count_is_reopening(const struct inode_io *d)
{
	return (d->c->reopening && d->reopened_gen != d->c->session_gen) ||
	       d->c->reopening_lost == d;
}

bool session_misses(const struct inode_io *d)
{
	return !d->c->stopping && (open_count_is_reopening(d) || open_count_is_lost(d));
}
