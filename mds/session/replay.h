/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay rows: each mutation is executed once. A mutation carries (session, slot, seq). The last
 * reply of each slot is recorded in memory and, if the mutation changed anything, in the store,
 * in the same batch. A request that is repeated gets the recorded reply. If the first one is
 * still running, the repeated one waits for it.
 *
 * An operation of several batches records its progress in the store (replay_put_truncation), so
 * that a repetition after a crash of the server continues from there.
 *
 * An operation that failed for a temporary reason (retry class not NEVER) leaves no row: it may
 * be repeated under its number. Owned by the loop.
 */
#ifndef LEAT_MDS_SESSION_REPLAY_H
#define LEAT_MDS_SESSION_REPLAY_H

#include "common/proto/messages.h"
#include "common/rpc/replay_seq.h"
#include "mds/store/txn.h"

struct session;

#define REPLAY_REPLY_MAX 1024u /* longest encoded reply of a mutation */

struct replay_slot {
	struct replay_seq seqs;
	uint64_t truncate_seq;  /* this operation has truncated `cut`, which it is to open */
	uint64_t cancelled_seq; /* cancelled by the client */
	struct ino cut;
	uint8_t *reply;
	uint16_t reply_len, reply_cap;
	uint16_t op;
	int32_t status;
	bool redoing;    /* the open or close of its reply is being counted again */
	bool from_store; /* the reply was given before a restart or a takeover */
};

/* Decides whether the request (slot, seq) is executed. cancelled: the client cancels the request,
 * which is noted for the operation that runs or waits under that number (replay_cancelled). Returns
 * REPLAY_EXECUTE (the request is marked as running, and replay_end must follow), REPLAY_ANSWER (the
 * row has the reply), -LE_STALE_SEQ, -LE_INVAL (no such slot), -LE_SESSION_GONE, or -LE_TIMEDOUT if
 * the first request under that number is not done in time. Yields. */
int replay_begin(struct session *se, uint32_t slot, uint64_t seq, bool cancelled) CHECK_RESULT;
/* True if the client has cancelled the operation that runs under that number. Does not yield. */
bool replay_cancelled(const struct session *se, uint32_t slot, uint64_t seq);
/* Encodes the reply into the row. rep NULL: an empty reply. Returns 0, or an error if the reply is
 * longer than REPLAY_REPLY_MAX or there is no memory. Does not yield. */
int replay_encode(struct replay_slot *row, const struct msg_desc *desc,
		  const void *rep) CHECK_RESULT;
/* In the critical section of a mutation that succeeded: writes the row into its batch. */
void replay_put(struct store *s, const struct session *se, uint32_t slot);
/* In a critical section that is a part of an operation: records that the running operation, which
 * is to open the file, has truncated it. */
void replay_put_truncation(struct store *s, struct session *se, uint32_t slot, struct ino ino);
/* The file that the running operation has truncated so far, also before a restart; {0}: none. Does
 * not yield. */
struct ino replay_has_truncation(const struct replay_slot *row);
/* Ends the running operation and wakes the requests that wait for it. keep: the row keeps this
 * reply, as replay_encode has left it. Does not yield. */
void replay_end(struct replay_slot *row, uint16_t op, int status, bool keep);
/* Decodes the recorded reply into rep, whose bytes members point into buf (at least row->reply_len
 * bytes). Returns the status of the operation, or
 * -LE_INVAL if the number was used for another operation. Does not yield. */
int replay_answer(const struct replay_slot *row, const struct msg_desc *desc, void *buf,
		  void *rep) CHECK_RESULT;

/* At the start of the server: decodes a row of the store into the slot. Returns 0,
 * -LE_CORRUPT_STORE or -LE_NOMEM. Does not yield. */
int replay_load_row(struct session *se, uint32_t slot, const void *value, size_t len) CHECK_RESULT;

#endif
