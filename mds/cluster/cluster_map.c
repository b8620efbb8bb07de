/* SPDX-License-Identifier: Apache-2.0 */
/* The map on the wire is a list of items: first targets, then chains, then tables. A page holds as
 * many items as fit. */
#include "mds/cluster/cluster_map.h"

#include <stdlib.h>

static void chain_encode(const struct chain *ch, struct wire_w *w)
{
	uint8_t buf[CHAIN_MEMBERS_BUF];
	struct chain_info info = chain_info_of(ch, buf);

	wire_put_chain_info(w, &info);
}

static void encode_item(const struct cluster *c, uint32_t i, struct wire_w *w)
{
	if (i < c->n_targets)
		wire_put_target_info(w, &c->targets[i]->info);
	else if ((i -= c->n_targets) < c->n_chains)
		chain_encode(c->chains[i], w);
	else
		wire_put_table_info(w, &c->tables[i - c->n_chains]);
}

int cluster_map_encode(const struct cluster *c, uint32_t from, void *buf,
		       struct mds_map_get_rep *out)
{
	uint32_t ends[3] = {c->n_targets, c->n_targets + c->n_chains,
			    c->n_targets + c->n_chains + c->n_tables};
	struct bytes *parts[3] = {&out->targets, &out->chains, &out->tables};
	struct wire_w w;
	uint32_t i = from;

	if (from > ends[2])
		return -LE_INVAL;
	wire_w_init(&w, buf, MAP_PAGE_BYTES);
	for (uint32_t k = 0; k < 3; k++) {
		size_t at = w.len;

		while (w.status == 0 && i < ends[k]) {
			size_t before = w.len;

			encode_item(c, i, &w);
			if (w.status < 0)
				w.len = before; /* the item starts the next page */
			else
				i++;
		}
		*parts[k] = bytes_of((uint8_t *)buf + at, (uint32_t)(w.len - at));
	}
	if (i == from && from < ends[2])
		return w.status; /* cannot happen: every item fits into a page */
	out->next = i < ends[2] ? i : 0;
	return 0;
}

static bool is_member(const struct chain *ch, uint32_t target)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == target)
			return true;
	return false;
}

#define CHAIN_WIRE_MAX (72u + CHAIN_MEMBERS_BUF)

int cluster_chains_encode(const struct cluster *c, struct chain *const *chains, uint32_t n,
			  struct bytes *ret_chains, struct bytes *ret_targets)
{
	size_t size = n * CHAIN_WIRE_MAX;
	uint8_t wanted[256] = {0}, *buf;
	struct wire_w w;
	size_t at;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < chains[i]->n_members; k++)
			wanted[chains[i]->members[k].target - 1] = 1;
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (wanted[i])
			size += 192 + c->targets[i]->info.addrs.len +
				c->targets[i]->info.host.len + c->targets[i]->info.rack.len;
	buf = malloc(size + 1);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, size);
	for (uint32_t i = 0; i < n; i++)
		chain_encode(chains[i], &w);
	at = w.len;
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (wanted[i])
			wire_put_target_info(&w, &c->targets[i]->info);
	ASSERT(w.status == 0);
	*ret_chains = bytes_of(buf, (uint32_t)at);
	*ret_targets = bytes_of(buf + at, (uint32_t)(w.len - at));
	return 0;
}

int cluster_chains_of(const struct cluster *c, const struct target *t, struct bytes *ret_chains,
		      struct bytes *ret_targets)
{
	struct chain **v = calloc(c->n_chains + 1, sizeof(struct chain *));
	uint32_t n = 0;
	int rc;

	if (v == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < c->n_chains; i++)
		if (is_member(c->chains[i], t->info.id))
			v[n++] = c->chains[i];
	rc = cluster_chains_encode(c, v, n, ret_chains, ret_targets);
	free(v);
	return rc;
}
