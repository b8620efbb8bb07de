/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of many chunks of a file: truncate and punch, under an intent. data_begin writes the
 * intent in a critical section. data_carry_out trims or punches on all chains and ends the
 * intent. If the server stops before that, the next start executes the intent (recovery.h).
 * Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_TRUNCATE_H
#define LEAT_MDS_FILE_TRUNCATE_H

#include "mds/op.h"

/*
 * In a critical section: writes the intent rec, of which the caller has set kind, range, mask
 * and attributes. The caller holds the file's `busy` from before this until data_carry_out has
 * returned. final: it is the whole operation, and the attributes are its reply, so the replay
 * row is written with the end of the intent. Otherwise it is a part of an operation
 * (op_truncates).
 *
 * Returns 0 and the number of the intent; -LE_GIVEN_UP if the layout has a chain that was given
 * up; -LE_OVERLOAD if there are too many intents. With an error it has changed nothing. Does not
 * yield.
 */
int data_begin(struct op *op, struct intent_rec *rec, const struct inode_rec *inode, bool final,
	       uint64_t *ret_no) CHECK_RESULT;
/*
 * Executes the intent on all chains, repeatedly until that succeeds or the server stops. Then
 * ends the intent, sets size and attributes, and waits until no client can return old data from
 * a cache. Meanwhile getattr reports ATTR_TRUNCATING. Ignores the deadline of the request.
 *
 * Returns 0 and the new attributes. -LE_CORRUPT: a chunk of which a part would remain is damaged
 * in all its replicas; the intent has ended, the size is unchanged, and nothing was truncated.
 * -LE_SHUTDOWN and other errors: the intent stays. Yields.
 */
int data_carry_out(struct op *op, struct open_file *f, uint64_t intent,
		   const struct intent_rec *rec, struct attr *ret_attr) CHECK_RESULT;
/* At the start of the server: takes the slot at the object servers under which the previous
 * incarnation executed an intent, or another one, in *slot, if another intent has that. Returns
 * 0, -LE_CORRUPT_STORE or -LE_OVERLOAD. Does not yield. */
int intent_slot_hold(struct mds *m, uint32_t *slot) CHECK_RESULT;
/* Called when a request is repeated whose truncation was executed before a restart: waits until
 * no client can return old data from a cache, because the previous incarnation may not have
 * waited. Yields. */
void data_truncated_before(struct op *op, struct ino ino);

/* A data generation that the inode has never used. Does not yield. */
uint32_t data_next_gen(const struct inode_rec *rec);
/* In a critical section: empties a file that no session has open. It gets a new data generation,
 * and the old one is queued for removal. If the layout has a chain that was given up the file
 * gets another layout. */
void data_drop(struct op *op, struct inode_rec *rec);

#endif
