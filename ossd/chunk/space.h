/*
 * Who may take how much of the free space: grants of sessions (for write-behind), a reserve for
 * overwrites and deletes, and the extents that are free but still being read. Owned by the
 * store's loop; nothing here yields.
 *
 * A write that replaces bytes needs room only until its commit frees the old ones: it may use
 * the reserve. A write within its session's grant always fits. Any other needs space that
 * nobody has been promised.
 */
#ifndef LEAT_OSSD_SPACE_H
#define LEAT_OSSD_SPACE_H

#include <stdbool.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "ossd/chunk/extent_alloc.h"

#define SPACE_SESSIONS_MAX 65536u
#define QUARANTINE_MAX     65536u

struct space_session {
	struct hmap_node node;
	uint64_t session, grant; /* bytes */
	uint64_t last_us;
	uint32_t n_peers; /* connections that use it */
};

/* A reader of extents: between begin and end nothing that was free'd since is given out again. */
struct read_pin {
	struct list link;
	uint64_t gen;
};

struct freed {
	uint64_t start, gen;
	uint32_t n;
};

struct space {
	struct extent_alloc alloc;
	uint64_t reserve, grant_max, granted;
	uint64_t promise_max; /* of `granted`: what other members of chains have room for */
	struct hmap sessions;
	struct list pins; /* oldest first */
	uint64_t gen;
	struct freed *ring; /* freed while somebody was reading */
	uint64_t ring_head, ring_tail;
	uint64_t quarantined; /* units in the ring */
	bool frozen; /* the index is damaged: who owns what is not sure, so nothing is given out
			twice */
};

int space_init(struct space *s, uint64_t n_units, uint64_t limit, uint64_t reserve,
	       uint64_t grant_max) CHECK_RESULT;
void space_fini(struct space *s);

uint64_t space_total(const struct space *s); /* bytes, like the following */
uint64_t space_used(const struct space *s);
uint64_t
space_usable(const struct space *s); /* for new data, promised or not; without the reserve */

void read_pin_begin(struct space *s, struct read_pin *p);
void read_pin_end(struct space *s, struct read_pin *p);
/* After the commit that freed them: usable as soon as no older reader is left. */
void space_free(struct space *s, uint64_t start, uint32_t n);

/* May a write of len bytes that takes need units, growth of them in addition to what it will
 * free, go ahead? Uses up the session's grant. -LE_NOSPC. */
int space_admit(struct space *s, uint64_t session, uint32_t len, uint32_t need,
		uint32_t growth) CHECK_RESULT;
/* Sets what the session holds towards want as far as there is space: what it holds now. */
uint64_t space_grant(struct space *s, uint64_t session, uint64_t want, uint64_t now_us);
uint64_t space_grant_held(const struct space *s, uint64_t session);
/* A connection uses this session (delta 1) or no longer does (-1). */
void space_peer(struct space *s, uint64_t session, int delta, uint64_t now_us);
/* Drops the grants of sessions that had no connection since before_us. */
void space_expire(struct space *s, uint64_t before_us);

#endif
