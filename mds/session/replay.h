/*
 * Exactly once: each mutation carries (session, slot, seq). Per slot the last answer is kept, in
 * memory and, when the mutation changed anything, in the store, in the same batch. What is repeated
 * gets the same answer; what is repeated while the first is still running waits for it.
 *
 * An operation of several batches notes in the store how far it has come (replay_put_cut), so that
 * whoever repeats it after a crash goes on from there.
 *
 * An operation that failed for a passing reason (retry class not NEVER) leaves no row: it may be
 * repeated under its number.
 */
#ifndef LEAT_MDS_SESSION_REPLAY_H
#define LEAT_MDS_SESSION_REPLAY_H

#include "common/proto/message.h"
#include "common/rt/fiber.h"
#include "mds/store/txn.h"

struct session;

#define REPLAY_REPLY_MAX 1024u /* longest encoded reply of a mutation */

struct replay_slot {
	uint64_t seq, run_seq;  /* answered last; running */
	uint64_t cut_seq;       /* that one has cut the file already that it is to open */
	uint64_t withdrawn_seq; /* shall not be done if that is not too late */
	struct ino cut;
	uint8_t *reply;
	uint16_t reply_len, reply_cap;
	uint16_t op;
	int32_t status;
	bool running;
	bool redoing;    /* what it opened or closed is being counted again */
	bool from_store; /* the answer is a former incarnation's, or was given before a takeover */
	struct waitq done;
};

enum replay_verdict {
	REPLAY_EXECUTE,
	REPLAY_ANSWER
};
/* What is to be done with (slot, seq). EXECUTE: it is marked as running; replay_end must follow.
 * ANSWER: the row has the answer. withdrawn: whoever asked for it is gone, and what is running or
 * waiting under that number is told so (replay_withdrawn). -LE_STALE_SEQ, -LE_INVAL (no such slot),
 * -LE_SESSION_GONE, -LE_TIMEDOUT (the former one is not done in time). Yields. */
int replay_begin(struct session *se, uint32_t slot, uint64_t seq, bool withdrawn,
		 enum replay_verdict *ret_verdict) CHECK_RESULT;
/* Shall what is running under that number not be done any more? */
bool replay_withdrawn(const struct session *se, uint32_t slot, uint64_t seq);
/* In the critical section of the mutation that succeeded: puts the row into its batch. rep NULL:
 * empty. */
int replay_encode(struct replay_slot *row, const struct msg_desc *desc,
		  const void *rep) CHECK_RESULT;
void replay_put(struct store *s, const struct session *se, uint32_t slot);
/* As replay_put, of a part: the running operation, which is to open the file, has cut it. */
void replay_put_cut(struct store *s, struct session *se, uint32_t slot, struct ino ino);
/* Which file the running operation has cut so far, also in a former incarnation; 0: none. */
struct ino replay_has_cut(const struct replay_slot *row);
/* The end of the running operation. keep: this answer stays (the reply as replay_encode left it).
 */
void replay_end(struct replay_slot *row, uint16_t op, int status, bool keep);
/* Decodes the kept reply into rep, whose bytes members point into buf (at least row->reply_len). */
int replay_answer(const struct replay_slot *row, const struct msg_desc *desc, void *buf,
		  void *rep) CHECK_RESULT;

int replay_load_row(struct session *se, uint32_t slot, const void *value, size_t len) CHECK_RESULT;

#endif
