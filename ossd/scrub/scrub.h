/*
 * Scrub: reads every block of every chunk of the target and compares it with its checksum, repairs
 * what is damaged from other members, and, at the head of a chain, compares the content sums of
 * all SYNC members and makes those equal that are not. Where it stands is a row of the index
 * (M "scrub"), so it goes on after a restart. Owned by the target's loop.
 *
 * What it could not compare it tells: the chunks that were not compared with a member, because it
 * was away, is being filled, did not answer or is written all the time; and that chains had another
 * epoch at its end than at its begin, so that one may have been led, while it came by, by who had
 * not yet or no more to compare it.
 */
#ifndef LEAT_OSSD_SCRUB_H
#define LEAT_OSSD_SCRUB_H

#include "ossd/chain/care.h"

#define scrub_row_FIELDS(F) \
	F(u8, running) F(u32, chain) F(chunk_id, next) F(u64, chunks) F(u64, bytes) \
	F(u64, damaged) F(u64, repaired) F(u64, unrepaired) F(u64, differing) F(i64, began_ns) \
	F(i64, ended_ns) F(u64, uncompared) F(u64, epochs) F(u8, moved)
WIRE_STRUCT(scrub_row)

struct scrub;

/* Goes on where it was. After care_start. Yields. */
int scrub_open(struct care *k, struct scrub **ret_scrub) CHECK_RESULT;
/* Nothing of it is under way any more. Before care_stop. Yields. */
void scrub_close(struct scrub *s);
/* Frees it, when no request is left either. */
void scrub_free(struct scrub *s);

/* From the first chunk on; one that runs goes on. */
int scrub_start(struct scrub *s) CHECK_RESULT;
/* Durable: it does not go on after a restart. Yields, like scrub_start. */
int scrub_stop(struct scrub *s) CHECK_RESULT;
const struct scrub_row *scrub_state(const struct scrub *s);

#endif
