/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends to a file that several clients have open. The metadata server reserves a range for each
 * append, so that two appends never overlap, and recalls reservations before it truncates the file.
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_APPEND_H
#define LEAT_CLIENT_DATA_APPEND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct inode;
struct inode_io;
struct ll_file;

/* Handles the recall of LEASE_APPEND. Voids all reservations up to this change counter, also those
 * whose reply has not arrived. Returns when no append uses one and what was written is visible.
 * Does not wait for requests to the MDS. The caller has a reference to the inode. Returns 0 or
 * -LE_INTR. Yields. */
int append_recall(struct inode *i, uint64_t change) CHECK_RESULT;

/* The append reservation of one append: bytes [off, end) of the file. end 0: none yet. lost: other
 * clients have written in it. */
struct append_range {
	uint64_t off, end;
	uint32_t n_truncations;
	bool lost;
};

/* Reserves len bytes at the end of the file, at the MDS. Repeats the request while a recall
 * overtakes the reply. p: in: the previous reservation of this append (end 0: none); out: the new
 * one. A reservation that the previous process got for this append is replaced too, because it may
 * have been used and recalled. Returns 0, -LE_FBIG, or the error; -LE_IO if recalls overtook every
 * reply until the deadline. Yields. */
int append_reserve(struct ll_file *f, uint64_t len, struct append_range *p);

/*
 * Finds the end of the file for an append of len bytes without the MDS, if a write lease makes this
 * client's size exact and the bytes can be coalesced in one step. Then sets inode_io.appending and
 * *ret_off, and the caller writes and calls append_ended. A recall waits for that (flush_visible),
 * and a restarted metadata server is notified (RECLAIM_UNFLUSHED). Otherwise inode_io.appending
 * stays false. Returns 0 or an error. Yields.
 */
int append_find_end(struct ll_file *f, uint64_t len, uint64_t *ret_off);

/* Ends an append: drops its reservation, or inode_io.appending, and wakes recalls. Does not
 * yield. */
void append_ended(struct inode_io *d);

/* Called before a write at an offset to a file that was opened with O_APPEND, after fcntl(F_SETFL)
 * has cleared the flag. Opens the file again at the MDS, without O_APPEND: the MDS then queries the
 * chains before it reserves a range for another client, because this client's writes are not
 * reported. The open stays without O_APPEND if the program sets the flag again. Returns 0 or an
 * error. Yields. */
int append_flag_cleared(struct ll_file *f);

#endif
