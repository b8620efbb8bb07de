/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes each request exactly once: holds the last reply of each (chain, session, slot), in
 * memory and as row 'R' of the index, written in the batch of the change that it answers. Owned by
 * the store's loop.
 *
 * replay_begin → (execute; the last change joins a group together with replay_join) → replay_end.
 * A request that is repeated while its first copy runs waits for that.
 *
 * A request that changes many chunks, none of them twice, has further rows beside its reply: one
 * for each of several lanes (replay_step_begin). The row of a lane holds the last chunk that was
 * changed, written in the batch of that change. The chunks of a lane are changed one after the
 * other, in ascending order.
 */
#ifndef LEAT_OSSD_CHUNK_REPLAY_H
#define LEAT_OSSD_CHUNK_REPLAY_H

#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "common/proto/wire.h"
#include "common/rpc/replay_seq.h"
#include "ossd/chunk/keys.h"

#define REPLAY_REPLY_MAX 64u
/* Request slots are below REPLAY_SLOTS, the lanes of each slot above. The number of lanes is
 * prime, so that the chunks of a file that lie on one chain spread over all lanes. */
#define REPLAY_SLOTS (1u << 24)
#define REPLAY_LANES 17u

#define replay_row_FIELDS(F) F(u64, seq) F(i32, status) F(u16, op) F(bytes, reply)
WIRE_STRUCT(replay_row)

struct replay_ent {
	struct hmap_node node;
	struct replay_key key;
	uint16_t op;
	uint16_t reply_len;
	struct replay_seq seqs;
	uint64_t run;         /* counts executions begun; an earlier one may end later */
	uint64_t last_us;     /* last use; 0: none since the start */
	uint32_t users;       /* requests that wait or execute; the entry is not freed */
	bool unconfirmed; /* the reply may be that of a change that was never committed */
	uint8_t reply[REPLAY_REPLY_MAX];
	/* reply of the running request, until it is durable */
	uint16_t next_op, next_len;
	uint8_t next[REPLAY_REPLY_MAX];
};

struct replay {
	struct hmap map;
	uint32_t max;
};

/* max: number of entries after which new slots get -LE_OVERLOAD. */
void replay_init(struct replay *r, uint32_t max);
void replay_fini(struct replay *r);
/* Loads a row of the index at the start. Returns 0, -LE_CORRUPT_STORE or -LE_NOMEM. */
int replay_load(struct replay *r, const void *key, size_t key_len, const void *value,
		size_t len) CHECK_RESULT;

/* Returns REPLAY_EXECUTE: execute the request as (*ret_ent)->run, then call replay_end. Returns
 * REPLAY_ANSWER: the reply is in (*ret_ent)->reply. Else -LE_STALE_SEQ, -LE_OVERLOAD or
 * -LE_TIMEDOUT. Yields while an earlier request of the slot runs. */
int replay_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent) CHECK_RESULT;
struct replay_step {
	struct replay_ent *ent; /* NULL: no step has begun */
	uint64_t run;
};
/* Begins the change of chunk idx by a request that replay_begin has begun under key. Returns
 * REPLAY_EXECUTE: *ret_step has begun, change the chunk. Returns REPLAY_ANSWER: the chunk was
 * changed already. Else like replay_begin. Yields like replay_begin. */
int replay_step_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		      uint64_t idx, struct replay_step *ret_step) CHECK_RESULT;
static inline uint32_t replay_lane(uint64_t idx)
{
	return (uint32_t)(idx % REPLAY_LANES);
}
/* Encodes the reply of a step's row. */
#define REPLAY_STEP_SIZE 8u
void replay_step_encode(uint64_t idx, uint8_t out[REPLAY_STEP_SIZE]);
/* Adds the row of the running request, with this reply, to the batch. */
void replay_join(struct replay_ent *e, struct kv_batch *b, const void *reply, uint32_t len);
/* Ends the execution `run` and wakes waiting requests. durable: its batch is committed. Ignored if
 * a later execution has begun: the execution of the previous head may end after the next head has
 * sent the change again. */
void replay_end(struct replay_ent *e, uint64_t run, bool durable);

/* Decodes the value of a row. Returns 0 or -LE_CORRUPT_STORE. */
int replay_parse(const void *value, size_t len, struct replay_row *ret_row) CHECK_RESULT;
/*
 * Before a member is filled it may have replies to changes that no other member has.
 * replay_mark_unconfirmed() marks all replies of the chain as unconfirmed. A reply is confirmed
 * when the source sends its own, or a change arrives that carries a reply. When the source has
 * sent all replies, replay_forget_unconfirmed() deletes the unconfirmed ones.
 */
void replay_mark_unconfirmed(struct replay *r, uint32_t chain);
void replay_forget_unconfirmed(struct replay *r, uint32_t chain, struct kv_batch *b);
/* Stores a reply that another member of the chain sent, in memory and batch, unless a later,
 * confirmed one is here. Returns 0, -LE_BAD_MESSAGE, -LE_OVERLOAD or -LE_NOMEM. */
int replay_import(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		  struct kv_batch *b) CHECK_RESULT;

/* Adds the reply of a pending change to the batch, unless a later one is here: it is valid if the
 * change is committed, whatever the source sent. */
void replay_keep(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		 struct kv_batch *b);

/* True if a later, confirmed request of the slot is here. */
bool replay_is_past(struct replay *r, const struct replay_key *key, uint64_t seq);

/* Begins a change that another member of the chain has made and that carries its reply. Call
 * replay_join next. A repeated request waits here until replay_settle. Returns 0 or -LE_NOMEM.
 * Does not yield. */
int replay_apply(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent) CHECK_RESULT;
/* Ends what replay_apply began: the change is committed, or was aborted. */
void replay_settle(struct replay_ent *e, uint64_t seq, bool committed);
/* Adds to the batch what undoes the row of an aborted change: its deletion or, for a lane, the row
 * of the step before. */
void replay_take_back(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		      struct kv_batch *b);

/* Adds up to max deletions of rows not used since before_us to the batch, and returns their
 * number. Rows expire if their session is not alive, or if they are lanes of a request that has
 * its reply. */
uint32_t replay_expire(struct replay *r, struct kv_batch *b, uint64_t before_us, uint32_t max,
		       bool (*alive)(void *arg, uint64_t session), void *arg);

#endif
