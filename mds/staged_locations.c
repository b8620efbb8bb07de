/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/staged_locations.h"

#include <stdlib.h>

#define NODE_NAME_MAX 128u
#define ADDRS_MAX     512u
#define ID_LEN        64u
#define NAME_MAX_     300u

struct node {
	struct list link;
	struct bytes name, addrs, rows; /* in data */
	uint64_t told_us, expires_us;
	size_t size;
	uint8_t data[];
};

void residency_init(struct residency *r)
{
	*r = (struct residency){0};
	list_init(&r->nodes);
}

static void forget(struct residency *r, struct node *n)
{
	list_remove(&n->link);
	r->n_nodes--;
	r->bytes -= n->size;
	free(n);
}

void residency_fini(struct residency *r)
{
	while (!list_empty(&r->nodes))
		forget(r, list_entry(r->nodes.next, struct node, link));
}

static void expire(struct residency *r, uint64_t now_us)
{
	for (struct list *pos = r->nodes.next; pos != &r->nodes;) {
		struct node *n = list_entry(pos, struct node, link);

		pos = pos->next;
		if (n->expires_us <= now_us)
			forget(r, n);
	}
}

static struct node *find(struct residency *r, struct bytes name)
{
	list_for_each (pos, &r->nodes) {
		struct node *n = list_entry(pos, struct node, link);

		if (bytes_equal(n->name, name))
			return n;
	}
	return NULL;
}

/* Printable: people and schedulers read it. */
static bool is_text(struct bytes b, uint32_t max)
{
	const char *c = b.data;

	for (uint32_t i = 0; i < b.len; i++)
		if (c[i] < ' ' || c[i] > '~' || c[i] == '"' || c[i] == '\\')
			return false;
	return b.len <= max;
}

static int check_rows(struct bytes rows)
{
	struct wire_r r;
	uint32_t n = 0;

	wire_r_init(&r, rows.data, rows.len);
	while (!wire_r_end(&r)) {
		struct residency_row row = {0};

		wire_get_residency_row(&r, &row);
		if (r.status < 0)
			break;
		if (++n > RESIDENCY_ROWS_MAX || row.id.len != ID_LEN || !is_text(row.id, ID_LEN) ||
		    !is_text(row.name, NAME_MAX_))
			return -LE_INVAL;
	}
	return r.status;
}

static struct bytes take(struct node *n, size_t *at, struct bytes from)
{
	if (from.len)
		memcpy(n->data + *at, from.data, from.len);
	struct bytes b = bytes_of(n->data + *at, from.len);
	*at += from.len;
	return b;
}

int residency_set(struct residency *r, const struct mds_residency_set_req *in, uint64_t now_us)
{
	size_t size = sizeof(struct node) + in->node.len + in->addrs.len + in->rows.len, at = 0;
	struct node *n, *old;

	if (in->node.len == 0 || !is_text(in->node, NODE_NAME_MAX) ||
	    !is_text(in->addrs, ADDRS_MAX) || in->ttl_ms > RESIDENCY_TTL_MAX_MS)
		return -LE_INVAL;
	TRY(check_rows(in->rows));
	expire(r, now_us);
	old = find(r, in->node);
	if (old)
		forget(r, old);
	if (in->rows.len == 0)
		return 0;
	if (r->n_nodes == RESIDENCY_NODES_MAX || r->bytes + size > RESIDENCY_BYTES_MAX)
		return -LE_TOO_BIG;
	n = malloc(size);
	if (!n)
		return -LE_NOMEM;
	*n = (struct node){.told_us = now_us,
			   .expires_us = now_us + (uint64_t)in->ttl_ms * 1000,
			   .size = size};
	n->name = take(n, &at, in->node);
	n->addrs = take(n, &at, in->addrs);
	n->rows = take(n, &at, in->rows);
	list_push(&r->nodes, &n->link);
	r->n_nodes++;
	r->bytes += size;
	return 0;
}

static bool matches(struct bytes what, const struct residency_row *row)
{
	return what.len == 0 || bytes_equal(what, row->id) || bytes_equal(what, row->name);
}

/* Returns false if w is full. *number counts the rows that match. */
static bool put_node(struct wire_w *w, const struct node *n, uint64_t now_us,
		     const struct mds_residency_get_req *in, uint32_t *number)
{
	struct wire_r r;

	wire_r_init(&r, n->rows.data, n->rows.len);
	while (!wire_r_end(&r)) {
		struct residency_row row = {0};

		wire_get_residency_row(&r, &row);
		if (!matches(in->what, &row) || (*number)++ < in->from)
			continue;
		struct residency_node out = {
			.node = n->name,
			.addrs = n->addrs,
			.id = row.id,
			.name = row.name,
			.state = row.state,
			.bytes = row.bytes,
			.done = row.done,
			.age_ms = (uint32_t)((now_us - n->told_us) / 1000),
		};
		size_t before = w->len;
		wire_put_residency_node(w, &out);
		if (w->status < 0) {
			w->status = 0;
			w->len = before;
			(*number)--;
			return false;
		}
	}
	return true;
}

void residency_get(struct residency *r, const struct mds_residency_get_req *in, uint64_t now_us,
		   struct wire_w *w, uint32_t *ret_next)
{
	uint32_t number = 0;

	expire(r, now_us);
	*ret_next = 0;
	list_for_each (pos, &r->nodes) {
		if (!put_node(w, list_entry(pos, struct node, link), now_us, in, &number)) {
			*ret_next = number;
			return;
		}
	}
}
