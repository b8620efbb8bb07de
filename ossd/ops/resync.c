/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests between members of a chain to become equal. To a member that is being filled:
 * oss_resync_ask, oss_resync_chunk, oss_resync_rows. To a member that is the source: oss_fetch.
 */
#include "ossd/chain/maintenance.h"
#include "ossd/chain/receive.h"
#include "ossd/chunk/store_record.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

#define ASK_MAX 1000u
#define ID_ROOM 32u /* encoded size of one chunk_id */

/* Admits requests of other members of the chain, in the same epoch. */
static int admit(struct rpc_req *r, struct chain **ret_chain)
{
	struct target *t = op_target(r);

	if (r->peer->role != ROLE_OSSD)
		return -LE_PERM;
	if (!t->ready || !t->maintenance)
		return -LE_NOT_READY;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	return chain_admit(t->chains, r->hdr.chain, r->hdr.epoch, CHAIN_MEMBER, ret_chain);
}

static int put_suspects(struct rpc_req *r, struct chain *c, const struct oss_resync_ask_req *req,
			struct oss_resync_ask_rep *rep)
{
	uint32_t max = req->max < ASK_MAX ? req->max : ASK_MAX;
	struct chunk_key from = chunk_key_of(c->id, &req->from);
	struct chunk_keys keys = {.k = rpc_req_alloc(r, max * sizeof(*keys.k))};
	void *buf = rpc_req_alloc(r, (size_t)max * ID_ROOM);
	struct wire_w w;

	if (max == 0)
		return -LE_INVAL;
	if (!keys.k || !buf)
		return -LE_NOMEM;
	TRY(chain_log_list(c->all->log, ROW_PENDING, &from, max, &keys));
	wire_w_init(&w, buf, (size_t)max * ID_ROOM);
	for (uint32_t i = 0; i < keys.n; i++) {
		struct chunk_id id = chunk_key_id(&keys.k[i]);

		wire_put_chunk_id(&w, &id);
	}
	rep->chunks = bytes_of(buf, (uint32_t)w.len);
	rep->more = keys.more;
	return w.status;
}

int op_resync_ask(struct rpc_req *r, const void *in, void *out)
{
	struct oss_resync_ask_rep *rep = out;
	struct chain *c;

	TRY(admit(r, &c));
	rep->incarnation = op_target(r)->maintenance->incarnation;
	/* Losses here are in no log. */
	if (!inventory_is_uncertain(&op_target(r)->store->inventory, c->id))
		rep->synced_epoch = chain_log_synced_epoch(c->all->log, c->id);
	return put_suspects(r, c, in, rep);
}

int op_resync_chunk(struct rpc_req *r, const void *in, void *out)
{
	struct chain *c;

	TRY(admit(r, &c));
	if (chain_is_head(c))
		return -LE_STALE_EPOCH;
	return receive_chunk(op_target(r)->maintenance, c, in, out);
}

int op_resync_rows(struct rpc_req *r, const void *in, void *out)
{
	struct oss_resync_rows_rep *rep = out;
	struct chain *c;

	TRY(admit(r, &c));
	if (chain_is_head(c))
		return -LE_STALE_EPOCH;
	rep->incarnation = op_target(r)->maintenance->incarnation;
	return receive_rows(op_target(r)->maintenance, c, in);
}

/* ---- the source ---- */

static int put_record(struct rpc_req *r, const struct chunk_key *key,
		      const struct chunk_record *rec, struct bytes *ret_bytes)
{
	uint8_t *buf = rpc_req_alloc(r, CHUNK_RECORD_MAX);

	if (!buf)
		return -LE_NOMEM;
	*ret_bytes = bytes_of(buf, (uint32_t)chunk_record_encode(key, rec, buf));
	return 0;
}

static int read_part(struct rpc_req *r, const struct chunk_key *key, const struct chunk_record *rec,
		     struct slot *slot, const struct oss_fetch_req *req, struct oss_fetch_rep *rep)
{
	struct chunk_store *s = op_target(r)->store;
	struct chunk_part part = {.first = req->first};
	struct read_pin pin;
	int rc;

	if (req->first > rec->n_blocks)
		return -LE_INVAL;
	TRY(put_record(r, key, rec, &rep->record));
	read_pin_begin(&s->space, &pin);
	rc = chunk_part_read(s, key, rec, slot, &part);
	read_pin_end(&s->space, &pin);
	TRY(rc);
	if (part.len > req->max)
		return -LE_TOO_BIG;
	rep->next = part.next;
	r->reply_bulk[0] = (struct slot_vec){slot, 0, part.len};
	r->n_reply_bulk = 1;
	return 0;
}

/* Returns the record of that version. -LE_STALE: there is none. */
static int find_version(struct chunk_store *s, const struct chunk_key *key, uint64_t version,
			struct chunk_record **ret_rec)
{
	struct chunk_record *rec;

	TRY(chunk_store_record(s, key, &rec));
	/* A newer version, or a removal, may be pending. */
	if (!rec || rec->version != version) {
		chunk_record_unref(&s->cache, rec);
		TRY(chunk_store_committed(s, key, false, &rec));
	}
	if (rec && rec->version == version) {
		*ret_rec = rec;
		return 0;
	}
	chunk_record_unref(&s->cache, rec);
	return -LE_STALE;
}

int op_fetch(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_fetch_req *req = in;
	struct chunk_store *s = op_target(r)->store;
	struct chunk_record *rec;
	struct chunk_key key;
	struct chain *c;
	struct slot *slot;
	int rc;

	TRY(admit(r, &c));
	key = chunk_key_of(c->id, &req->chunk);
	/* Waiting for a slot may be long, so it comes first. Nothing yields between finding the
	 * record and the pin: extents that a write frees in between would be reused. */
	TRY(slot_get(s->read_pool, r->deadline_us, &slot));
	rc = find_version(s, &key, req->version, &rec);
	if (rc == 0) {
		rc = read_part(r, &key, rec, slot, req, out);
		chunk_record_unref(&s->cache, rec);
	}
	if (rc < 0)
		slot_unref(slot);
	return rc;
}
