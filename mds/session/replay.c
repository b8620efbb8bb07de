/* SPDX-License-Identifier: Apache-2.0 */
/* Replay rows; see replay.h. */
#include "mds/session/replay.h"

#include <stdlib.h>

#include "common/base/planted_bug.h"
#include "mds/session/session.h"

int replay_begin(struct session *se, uint32_t slot, uint64_t seq, bool cancelled)
{
	struct replay_slot *row;
	int rc;

	if (slot >= se->n_slots || seq == 0)
		return -LE_INVAL;
	row = &se->slots[slot];
	for (;;) {
		if (se->ended)
			return -LE_SESSION_GONE;
		if (PLANTED_BUG(MDS_NO_DEDUPE) && row->seqs.running == 0)
			break;
		rc = replay_seq_check(&row->seqs, seq);
		if (rc < 0 || rc == REPLAY_ANSWER)
			return rc;
		if (cancelled)
			row->cancelled_seq = seq;
		if (rc == REPLAY_EXECUTE)
			break;
		TRY(replay_seq_wait(&row->seqs));
	}
	replay_seq_begin(&row->seqs, seq);
	/* Cleared here and not in replay_end: a takeover while the operation runs sets it, and
	 * that must not be undone. */
	row->from_store = false;
	return REPLAY_EXECUTE;
}

bool replay_cancelled(const struct session *se, uint32_t slot, uint64_t seq)
{
	const struct replay_slot *row = slot < se->n_slots ? &se->slots[slot] : NULL;

	return row != NULL && seq != 0 && row->seqs.running == seq && row->cancelled_seq == seq;
}

int replay_encode(struct replay_slot *row, const struct msg_desc *desc, const void *rep)
{
	uint8_t buf[REPLAY_REPLY_MAX];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	desc->put_rep(&w, rep);
	if (w.status < 0)
		return w.status;
	if (w.len > row->reply_cap) {
		uint16_t cap = (uint16_t)((w.len + 63) & ~63u);
		uint8_t *p = realloc(row->reply, cap);

		if (p == NULL)
			return -LE_NOMEM;
		row->reply = p;
		row->reply_cap = cap;
	}
	if (w.len > 0)
		memcpy(row->reply, buf, w.len);
	row->reply_len = (uint16_t)w.len;
	row->op = desc->op;
	return 0;
}

static void put_row(struct store *s, const struct session *se, uint32_t slot,
		    const struct replay_rec *rec)
{
	uint8_t buf[REPLAY_REPLY_MAX + 64];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_replay_rec(&w, rec);
	ASSERT(w.status == 0);
	txn_put(s, key_replay(se->id, slot), buf, w.len);
}

void replay_put(struct store *s, const struct session *se, uint32_t slot)
{
	const struct replay_slot *row = &se->slots[slot];
	struct replay_rec rec = {row->seqs.running, row->op, 0,
				 bytes_of(row->reply, row->reply_len)};

	if (PLANTED_BUG(MDS_NO_ROWS))
		return;
	put_row(s, se, slot, &rec);
}

/* Replaces the reply to the previous number of the slot, which the client no longer needs. */
void replay_put_truncation(struct store *s, struct session *se, uint32_t slot, struct ino ino)
{
	struct replay_slot *row = &se->slots[slot];
	uint8_t id[8];
	struct replay_rec rec = {row->seqs.running, 0, 0, bytes_of(id, sizeof(id))};

	put_be(id, ino.v, sizeof(id));
	put_row(s, se, slot, &rec);
	row->truncate_seq = row->seqs.running;
	row->cut = ino;
}

struct ino replay_has_truncation(const struct replay_slot *row)
{
	bool has = row->seqs.running != 0 && row->truncate_seq == row->seqs.running;

	return has ? row->cut : (struct ino){0};
}

void replay_end(struct replay_slot *row, uint16_t op, int status, bool keep)
{
	if (keep) {
		row->op = op;
		row->status = status;
		if (status < 0)
			row->reply_len = 0;
	}
	replay_seq_end(&row->seqs, keep);
}

int replay_answer(const struct replay_slot *row, const struct msg_desc *desc, void *buf, void *rep)
{
	struct wire_r r;

	if (row->op != desc->op)
		return -LE_INVAL; /* one number for two operations */
	if (row->status < 0)
		return row->status;
	if (row->reply_len > 0)
		memcpy(buf, row->reply, row->reply_len);
	wire_r_init(&r, buf, row->reply_len);
	desc->get_rep(&r, rep);
	return r.status;
}

static int load_truncation(struct replay_slot *row, const struct replay_rec *rec)
{
	if (rec->reply.len != 8 || rec->seq == 0)
		return -LE_CORRUPT_STORE;
	row->seqs.last = rec->seq - 1;
	row->truncate_seq = rec->seq;
	row->cut = (struct ino){get_be(rec->reply.data, 8)};
	return 0;
}

int replay_load_row(struct session *se, uint32_t slot, const void *value, size_t len)
{
	struct replay_slot *row;
	struct replay_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_replay_rec(&r, &rec);
	if (r.status < 0 || slot >= se->n_slots || rec.reply.len > REPLAY_REPLY_MAX)
		return -LE_CORRUPT_STORE;
	row = &se->slots[slot];
	if (rec.op == 0)
		return load_truncation(row, &rec);
	row->reply = malloc(rec.reply.len + 1);
	if (row->reply == NULL)
		return -LE_NOMEM;
	memcpy(row->reply, rec.reply.data, rec.reply.len);
	row->reply_len = row->reply_cap = (uint16_t)rec.reply.len;
	row->seqs.last = rec.seq;
	row->op = rec.op;
	row->status = rec.status;
	row->from_store = true;
	return 0;
}
