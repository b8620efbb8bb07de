/*
 * Who may still read or change something. What a session that has ended was allowed ended with it:
 * its requests are refused, over whichever connection. It may have had a file to itself, which
 * others have now, so nothing of its changes may still be on its way: the metadata server tells
 * which sessions live, gives nobody what such a session had before every target has said that it
 * knows and that nothing of it is under way any more, and waits for as long as one may act that it
 * does not hear: so a target that has not heard of it for that long (fence_ms) takes no changes.
 * Reads go on then, of all that lived when it was heard last, so no living client loses its reads
 * because the metadata server is away; but where some network has less rights than others (read_ms
 * is told) they end too: a session may have ended because its rights were taken away.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_FENCE_H
#define LEAT_OSSD_FENCE_H

#include "ossd/chunk/writers.h"

struct fence {
	struct env *env;
	const struct writers *writers;
	bool open;       /* nobody is refused: in tests without a metadata server */
	uint64_t *live;  /* sorted; from malloc */
	size_t n;
	uint64_t newest; /* of the sessions that there were when it was told */
	uint64_t gen;
	uint64_t heard_us; /* when the newest request was sent that was answered */
	uint32_t fence_ms, read_ms; /* as was told then */
};

void fence_init(struct fence *f, struct env *env, const struct writers *w);
void fence_fini(struct fence *f);
/* These live, the others up to `newest` do not; answers may overtake each other, so an older set
 * than the one that is known is none. Takes over live. */
void fence_set(struct fence *f, uint64_t gen, uint64_t *live, size_t n, uint64_t newest);
/* The metadata server has answered what was sent at sent_us, and there is nothing newer. */
void fence_heard(struct fence *f, uint64_t sent_us, uint32_t fence_ms, uint32_t read_ms);
/* It tells how long reads go on; who lives is not known yet. */
void fence_reads_for(struct fence *f, uint32_t read_ms);
bool fence_lives(const struct fence *f, uint64_t session);
/* Whatever it asks for. -LE_SESSION_GONE: it is known here that the session has ended;
 * -LE_NO_LEASE. Does not yield. */
int fence_admit_any(const struct fence *f, uint64_t session) CHECK_RESULT;
/* It changes something: -LE_SESSION_GONE, -LE_NO_LEASE. Does not yield. */
int fence_admit(const struct fence *f, uint64_t session) CHECK_RESULT;
/* The set from which on nothing of a session that has ended is under way; 0: there is none. */
uint64_t fence_applied(const struct fence *f);

#endif
