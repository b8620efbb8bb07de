/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks and notes beside the data of a copy:
 *
 *   state    one line of JSON: what the process that changes it is doing, or why it has ended
 *   window   the first window is durable: a loader may begin
 *   used     its time: when a process used the copy last
 *   cancel   the process that makes the copy is to stop
 *   pin      it is not to be evicted
 *   unpack   archives that are here only to be unpacked, then evicted
 *
 * Locks and the bitmap have precedence over all of them; none is needed for reading.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_MARKS_H
#define LEAT_CLIENT_STAGE_STORE_STORE_MARKS_H

#include "client/stage/store/local_store.h"

struct store_note {
	int state; /* enum leat_stage_state */
	int code;  /* of a failure: enum leat_stage_code */
	char path[1024], message[256];
	uint64_t off;
};
/* Writes the file state for the process that changes the copy. Errors are ignored. Yields. */
void store_set_note(struct local_store *s, const struct store_note *n);
/* Reads the file state. False: there is none. Yields. */
bool store_get_note(struct local_store *s, struct store_note *ret_note);
/* Sets or removes a mark: "window", "used", "cancel", "pin", "stale", "unpack". Yields. */
int store_set_mark(struct local_store *s, const char *mark, bool on) CHECK_RESULT;
/* Returns whether the mark is set. ret_mtime_s (may be NULL): since when. */
bool store_has_mark(const struct local_store *s, const char *mark, int64_t *ret_mtime_s);
/* Returns when the mark was set, to distinguish it from the next. 0: it is not set. */
int64_t store_mark_ns(const struct local_store *s, const char *mark);
/* Appends a line to DIR/.leat/events. fields: further JSON members, or "". Errors are ignored. */
void store_event(const struct local_store *s, const char *what, const char *fields);

#endif
