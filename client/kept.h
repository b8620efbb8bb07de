/*
 * What outlives the process (struct ll_kept, in memory that the caller keeps): the session, the
 * numbers of changes whose answers the kernel may not have got, and which files have data that is
 * not durable. A process that starts with it goes on where the former one was ended, wherever that
 * was: each step is noted before what follows from it.
 *
 * Owned by the client's loop. Does nothing for clients without such memory.
 */
#ifndef LEAT_CLIENT_KEPT_H
#define LEAT_CLIENT_KEPT_H

#include "client/client.h"

/* From the start to the first session: takes over what is there. Before seq tables are made. */
void kept_start(struct client *c);
/* The seq table is there: numbers that may have to be repeated are not given to others. */
void kept_reserve(struct client *c);
/* There is a session; whether it is the former one is seen by its number. */
void kept_session(struct client *c);
/* Behind the first session and the map: attributes and locks of the files that were open, and
 * what has become of their data. Yields. */
int kept_resume(struct client *c) CHECK_RESULT;
/* From the client's tick. */
void kept_tick(struct client *c);

/* As seq_take and seq_give, for a change at the MDS: one that must not be made twice keeps its
 * number until the request of the kernel that it is for has been answered. Yields. */
int kept_take(struct client *c, uint16_t op, const void *req, uint64_t deadline_us,
	      uint32_t *ret_slot, uint64_t *ret_seq) CHECK_RESULT;
void kept_give(struct client *c, uint32_t slot);
/* Would it be another change if it were made twice? */
bool kept_must_be_once(uint16_t op, const void *req);
/* The change that this request has kept a number for was refused, and has changed nothing, or means
 * nothing any more: the next one of the request may keep its number. */
void kept_void(struct client *c);
/* Has a former process asked for such a change, for this request, which has not yet? */
bool kept_has_former(const struct client *c, uint16_t op);
/* Once: what this request has asked for is what a former process had asked for. */
bool kept_repeated(const struct client *c);

/* Bytes are accepted from a program now, without a yield, to be written behind. False: there is no
 * room to note that, so they must not be. */
bool kept_write_begin(struct idata *d) CHECK_RESULT;
/* Writes of the file have got further, or have failed. */
void kept_write_moved(struct idata *d);
/* Nobody has it open any more. */
void kept_write_end(struct idata *d);

#endif
