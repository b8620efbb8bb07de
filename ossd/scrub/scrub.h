/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scrub: reads every block of every chunk of the target, compares it with its checksum, and
 * repairs damaged blocks from other members. At the head of a chain it also compares the content
 * sums of all SYNC members, and makes those equal that differ. Its progress is a row of the index
 * (M "scrub"), so that it continues after a restart. Owned by the target's loop.
 *
 * It reports what it could not compare: uncompared counts chunks that were not compared with a
 * member because that was away, is being filled, did not answer, or because the chunk is written
 * continuously. moved is set if epochs of chains have changed during the scrub: when it reached
 * such a chain, its head may have been a target that no longer, or not yet, compares it.
 */
#ifndef LEAT_OSSD_SCRUB_SCRUB_H
#define LEAT_OSSD_SCRUB_SCRUB_H

#include "ossd/chain/maintenance.h"

#define scrub_row_FIELDS(F) \
	F(u8, running) F(u32, chain) F(chunk_id, next) F(u64, chunks) F(u64, bytes) \
	F(u64, damaged) F(u64, repaired) F(u64, unrepaired) F(u64, differing) F(i64, began_ns) \
	F(i64, ended_ns) F(u64, uncompared) F(u64, epochs) F(u8, moved)
WIRE_STRUCT(scrub_row)

struct scrub;

/* Continues the scrub that was interrupted. Call after maintenance_start. Yields. */
int scrub_open(struct maintenance *k, struct scrub **ret_scrub) CHECK_RESULT;
/* Ends the fiber. Call before maintenance_stop. Yields. */
void scrub_close(struct scrub *s);
/* Call when no request is left either. */
void scrub_free(struct scrub *s);

/* Begins a scrub with the first chunk; does nothing if one is running. */
int scrub_start(struct scrub *s) CHECK_RESULT;
/* Stops the scrub durably: it does not continue after a restart. Yields, like scrub_start. */
int scrub_stop(struct scrub *s) CHECK_RESULT;
/* Returns the progress of the present or last scrub. */
const struct scrub_row *scrub_state(const struct scrub *s);

#endif
