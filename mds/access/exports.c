/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/access/exports.h"

#include <string.h>

#include "mds/store/scan.h"
#include "mds/store/txn.h"

#define NOBODY 65534u

struct network export_network(const struct export_row *row)
{
	return (struct network){{row->net_hi, row->net_lo}, row->bits};
}

static bool same_network(const struct export_row *a, const struct network *n)
{
	return a->net_hi == n->addr.hi && a->net_lo == n->addr.lo && a->bits == n->bits;
}

const struct export_row *exports_match(const struct exports *e, struct net_address a)
{
	for (uint32_t i = 0; i < e->n; i++) {
		struct network n = export_network(&e->rows[i]);

		if (network_has(&n, a))
			return &e->rows[i];
	}
	return NULL;
}

struct export_row exports_rule(const struct exports *e, const char *peer)
{
	const struct export_row *row;
	struct net_address a;

	if (e->n == 0)
		return (struct export_row){0};
	if (net_address_of_peer(peer, &a) < 0)
		return (struct export_row){.flags = EXPORT_READ_ONLY | EXPORT_SQUASH_ALL,
					   .anon_uid = NOBODY,
					   .anon_gid = NOBODY};
	row = exports_match(e, a);
	return row != NULL ? *row : (struct export_row){0};
}

int exports_remove(struct exports *e, const struct network *net)
{
	for (uint32_t i = 0; i < e->n; i++) {
		if (!same_network(&e->rows[i], net))
			continue;
		memmove(&e->rows[i], &e->rows[i + 1], (e->n - i - 1) * sizeof(e->rows[0]));
		e->n--;
		return 0;
	}
	return -LE_NOENT;
}

int exports_put(struct exports *e, const struct export_row *row)
{
	struct network net = export_network(row);
	uint32_t at = 0;

	if (!network_valid(&net) || (row->flags & ~(uint32_t)EXPORT_FLAGS) != 0)
		return -LE_INVAL;
	/* A squashed user must not become root, nor -1, which is no id. */
	if ((row->flags & (EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL)) != 0 &&
	    (row->anon_uid == 0 || row->anon_uid == UINT32_MAX || row->anon_gid == UINT32_MAX))
		return -LE_INVAL;
	if (exports_remove(e, &net) < 0 && e->n == EXPORTS_MAX)
		return -LE_NOSPC;
	while (at < e->n && e->rows[at].bits >= row->bits)
		at++;
	ASSERT(e->n < EXPORTS_MAX);
	memmove(&e->rows[at + 1], &e->rows[at], (e->n - at) * sizeof(e->rows[0]));
	e->rows[at] = *row;
	e->n++;
	return 0;
}

struct bytes exports_encode(const struct exports *e, uint8_t *buf)
{
	struct wire_w w;

	wire_w_init(&w, buf, EXPORTS_BYTES);
	for (uint32_t i = 0; i < e->n; i++)
		wire_put_export_row(&w, &e->rows[i]);
	ASSERT(w.status == 0);
	return bytes_of(buf, (uint32_t)w.len);
}

int exports_store(const struct exports *e, struct store *s)
{
	uint8_t buf[EXPORTS_BYTES];
	struct bytes rows = exports_encode(e, buf);

	TRY(txn_begin(s));
	txn_put(s, key_cluster('x', 0), rows.data, rows.len);
	return store_wait(s, txn_end(s));
}

struct load {
	struct exports *e;
	int status;
};

static int load_rows(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct wire_r r;

	(void)key, (void)key_len;
	wire_r_init(&r, value, len);
	while (!wire_r_end(&r)) {
		struct export_row row;

		wire_get_export_row(&r, &row);
		if (r.status < 0 || exports_put(l->e, &row) < 0) {
			l->status = -LE_CORRUPT_STORE;
			return 1;
		}
	}
	return 0;
}

int exports_load(struct exports *e, struct store *s)
{
	struct load l = {.e = e};

	e->n = 0;
	fmutex_init(&e->lock);
	TRY(store_scan_prefix(s, (struct key){.b = {'C', 'x'}, .len = 2}, load_rows, &l));
	return l.status;
}
