/*
 * Exactly once: the last answer of each (chain, session, slot), in memory and as row 'R' of the
 * index, written in the same batch as the change it answers. Owned by the store's loop.
 *
 * replay_begin → (execute; the last change joins a group together with replay_join) →
 * replay_end. A request that comes again while the first one runs waits for it.
 *
 * A change of many chunks that must not be made twice of any has a row for each of some lanes
 * beside its answer (replay_step_begin): of each lane the last chunk that was changed, written in
 * the batch of that change. The chunks of a lane are changed one after the other, in the order of
 * their numbers.
 */
#ifndef LEAT_OSSD_REPLAY_H
#define LEAT_OSSD_REPLAY_H

#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "common/proto/wire.h"
#include "common/rt/fiber.h"
#include "ossd/chunk/rows.h"

#define REPLAY_REPLY_MAX 64u
/* Slots of requests are below; above are the lanes of each. A prime number of them, so that the
 * chunks of a file that lie on one chain do not share a few. */
#define REPLAY_SLOTS (1u << 24)
#define REPLAY_LANES 17u

#define replay_row_FIELDS(F) F(u64, seq) F(i32, status) F(u16, op) F(bytes, reply)
WIRE_STRUCT(replay_row)

struct replay_ent {
	struct hmap_node node;
	struct replay_key key;
	uint16_t op;
	uint16_t reply_len;
	uint64_t seq;         /* answered: the reply is here. 0: none yet */
	uint64_t running_seq; /* 0: none */
	uint64_t run;         /* counts who has begun with it: the former one may end later */
	uint64_t last_us;     /* last use; 0: not since start */
	uint32_t users;       /* who wait, or execute: it stays */
	bool doubted; /* maybe the answer of a change that was never committed */
	struct waitq q;
	uint8_t reply[REPLAY_REPLY_MAX];
	/* of the one that runs, until it is durable */
	uint16_t next_op, next_len;
	uint8_t next[REPLAY_REPLY_MAX];
};

struct replay {
	struct hmap map;
	uint32_t max;
};

void replay_init(struct replay *r, uint32_t max);
void replay_fini(struct replay *r);
/* A row of the index, at start. -LE_CORRUPT_STORE, -LE_NOMEM */
int replay_load(struct replay *r, const void *key, size_t key_len, const void *value,
		size_t len) CHECK_RESULT;

/* 0: execute it, as (*ret_ent)->run; replay_end must follow. 1: answered before, the reply is in
 * (*ret_ent)->reply. -LE_STALE_SEQ, -LE_OVERLOAD, -LE_TIMEDOUT. Yields while an earlier request of
 * the slot runs. */
int replay_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent) CHECK_RESULT;
struct replay_step {
	struct replay_ent *ent; /* NULL: none has begun */
	uint64_t run;
};
/* Of a request that was begun under key: its lane for chunk idx. 0: ret_step has begun, change it;
 * 1: that has been done. Else as replay_begin; yields as that does. */
int replay_step_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		      uint64_t idx, struct replay_step *ret_step) CHECK_RESULT;
static inline uint32_t replay_lane(uint64_t idx)
{
	return (uint32_t)(idx % REPLAY_LANES);
}
/* The reply of a step's row. */
#define REPLAY_STEP_SIZE 8u
void replay_step_encode(uint64_t idx, uint8_t out[REPLAY_STEP_SIZE]);
/* Puts the answer into the batch. */
void replay_join(struct replay_ent *e, struct kv_batch *b, const void *reply, uint32_t len);
/* durable: the batch is committed. Wakes who waits. Who is not the head any more may end when the
 * same change has come back from the next one: that one's end counts. */
void replay_end(struct replay_ent *e, uint64_t run, bool durable);

/* The value of a row. -LE_CORRUPT_STORE */
int replay_parse(const void *value, size_t len, struct replay_row *ret_row) CHECK_RESULT;
/*
 * A member that is to be filled may have answers of changes that nobody else has heard of: they are
 * in doubt until the source sends its own, or a change comes that carries one. What is still in
 * doubt when the source has sent all is forgotten.
 */
void replay_doubt(struct replay *r, uint32_t chain);
void replay_forget_doubted(struct replay *r, uint32_t chain, struct kv_batch *b);
/* An answer that another member of the chain has given: taken over into memory and batch unless a
 * later one is known without doubt. -LE_BAD_MESSAGE, -LE_OVERLOAD, -LE_NOMEM. */
int replay_import(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		  struct kv_batch *b) CHECK_RESULT;

/* The answer of a change that is pending, into the batch, unless a later one is known: it is the
 * answer if the change is committed, whatever the source said. */
void replay_keep(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		 struct kv_batch *b);

/* Is a later request of the slot known, without doubt? */
bool replay_is_past(struct replay *r, const struct replay_key *key, uint64_t seq);

/* The answer comes with a change that another member of the chain has made (then replay_join): a
 * request that is repeated here waits until replay_settle. -LE_NOMEM. Does not yield. */
int replay_apply(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent) CHECK_RESULT;
/* That change is committed, or was taken back. */
void replay_settle(struct replay_ent *e, uint64_t seq, bool committed);
/* The change that carried the answer is taken back in this batch. */
void replay_forget(struct replay_ent *e, struct kv_batch *b);
/* The same by its key: of a step, the one before it is the last again. */
void replay_take_back(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		      struct kv_batch *b);

/* Forgets the rows of sessions that are not alive, and the lanes of what has its answer, that were
 * not used since before_us: up to max deletions go into the batch; returns how many. */
uint32_t replay_expire(struct replay *r, struct kv_batch *b, uint64_t before_us, uint32_t max,
		       bool (*alive)(void *arg, uint64_t session), void *arg);

#endif
