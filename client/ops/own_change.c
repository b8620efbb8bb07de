/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/own_change.h"

#include <stddef.h>

#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/ops/delegated_open.h"
#include "common/base/assert.h"
#include "common/base/planted_bug.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

void pending_change_begin(struct client *c, struct pending_change *ch, struct ino ino)
{
	*ch = (struct pending_change){.c = c};
	pending_change_also(ch, ino);
}

void pending_change_also(struct pending_change *ch, struct ino ino)
{
	struct inode *i = inode_get(ch->c, ino);

	ASSERT(ch->n < ARRAY_SIZE(ch->inodes));
	if (i == NULL)
		return; /* nothing is cached without an inode */
	i->n_changing += PLANTED_BUG(CLIENT_OWN_CACHE) ? 0 : 1;
	ch->inodes[ch->n++] = i;
}

/* Counts one change of the directory as a change of only that name. */
static void only_name(struct pending_change *ch, struct ino dir, struct bytes name)
{
	ASSERT(ch->n_names < ARRAY_SIZE(ch->names));
	for (uint32_t k = 0; k < ch->n; k++) {
		if (!ino_equal(ch->inodes[k]->ino, dir))
			continue;
		ch->inodes[k]->n_names_changing++;
		ch->dirs[ch->n_names] = ch->inodes[k];
		dentry_cache_change_begin(ch->c, &ch->names[ch->n_names++], dir, name);
		return;
	}
}

struct ino pending_change_name(struct pending_change *ch, struct ino dir, struct bytes name)
{
	struct ino ino = {0};

	if (!PLANTED_BUG(CLIENT_OWN_CACHE))
		only_name(ch, dir, name);
	if (dentry_cache_peek(ch->c, dir, name, &ino) && ino.v != 0)
		pending_change_also(ch, ino);
	if (!PLANTED_BUG(CLIENT_OWN_CACHE))
		dentry_cache_forget(ch->c, dir, name);
	return ino;
}

int pending_change_report(struct pending_change *ch, struct ino ino, struct ino *ret_reported)
{
	struct client_leases *ls = &ch->c->leases;

	*ret_reported = ino;
	if (ino.v == 0 && ls->n_unreported_opens == 0) {
		ret_reported->v = REPORTED_ALL;
		ch->blind = true;
		ls->n_blind++;
	}
	for (uint32_t k = 0; k < ch->n; k++)
		if (ino_equal(ch->inodes[k]->ino, ino))
			return delegation_report(ch->c, ch->inodes[k]);
	return 0;
}

void pending_change_end(struct pending_change *ch, int rc)
{
	ASSERT(!ch->blind || ch->c->leases.n_blind > 0);
	ch->c->leases.n_blind -= ch->blind ? 1 : 0;
	while (ch->n_names > 0) {
		dentry_cache_change_end(&ch->names[--ch->n_names]);
		ASSERT(ch->dirs[ch->n_names]->n_names_changing > 0);
		ch->dirs[ch->n_names]->n_names_changing--;
	}
	while (ch->n > 0) {
		struct inode *i = ch->inodes[--ch->n];

		ASSERT(i->n_changing > i->n_names_changing || PLANTED_BUG(CLIENT_OWN_CACHE));
		i->n_changing -= PLANTED_BUG(CLIENT_OWN_CACHE) ? 0 : 1;
		if (rc < 0)
			dentry_cache_set_incomplete(ch->c, i);
		if (rc == -LE_IO || rc == -LE_INTR || rc == -LE_SHUTDOWN)
			dentry_cache_mark_unknown(i);
		inode_put(ch->c, i);
	}
}
