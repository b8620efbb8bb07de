/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the free space: grants of sessions (for write-back), a reserve for overwrites and
 * deletes, and freed extents that are still being read. Owned by the store's loop. Nothing here
 * yields.
 *
 * A write that replaces bytes needs space only until its commit frees the old ones, so it may use
 * the reserve. A write within its session's grant always fits. Any other write needs space that is
 * not granted to a session.
 */
#ifndef LEAT_OSSD_CHUNK_SPACE_H
#define LEAT_OSSD_CHUNK_SPACE_H

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
	uint32_t n_peers; /* its connections */
	bool member;      /* another target, which leads a chain that this one is a member of */
};

/* A reader of extents. Extents freed between begin and end are not reused before end. */
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
	/* The part of `granted` that clients hold, and its limit: the space that other members of
	 * chains have for it. */
	uint64_t promised, promise_max;
	struct hmap sessions;
	struct list pins; /* oldest first */
	uint64_t gen;
	struct freed *ring; /* freed while a read was in flight */
	uint64_t ring_head, ring_tail;
	uint64_t quarantined; /* units in the ring */
	bool frozen; /* the index is damaged: the free map is uncertain, so no space is freed */
};

/* n_units, limit: see extent_alloc.h. reserve is limited to an eighth of the area, grant_max is
 * per session; both in bytes. Returns 0 or -LE_NOMEM. */
int space_init(struct space *s, uint64_t n_units, uint64_t limit, uint64_t reserve,
	       uint64_t grant_max) CHECK_RESULT;
void space_fini(struct space *s);

uint64_t space_total(const struct space *s); /* bytes, like the following */
uint64_t space_used(const struct space *s);
uint64_t
space_usable(const struct space *s); /* for new data, granted or not; without the reserve */

/* Between read_pin_begin and read_pin_end no extent freed meanwhile is reused. */
void read_pin_begin(struct space *s, struct read_pin *p);
void read_pin_end(struct space *s, struct read_pin *p);
/* Call after the commit that freed the extent: it is usable when no older reader is left. */
void space_free(struct space *s, uint64_t start, uint32_t n);

/* Admits a write of len bytes that takes need units, of which growth are in addition to what it
 * will free. Charges the session's grant. Returns 0 or -LE_NOSPC. */
int space_admit(struct space *s, uint64_t session, uint32_t len, uint32_t need,
		uint32_t growth) CHECK_RESULT;
/* Changes the grant of a client's session towards want, as far as there is space, here and at the
 * other members (promise_max). Returns the grant. */
uint64_t space_grant(struct space *s, uint64_t session, uint64_t want, uint64_t now_us);
/* Like space_grant, for the session of another target. Only the space here limits the grant: two
 * targets that are members of each other's chains would else limit each other down to nothing. */
uint64_t space_grant_member(struct space *s, uint64_t session, uint64_t want, uint64_t now_us);
/* Returns the session's present grant. */
uint64_t space_grant_held(const struct space *s, uint64_t session);
/* Counts connections of the session: delta is 1 or -1. */
void space_peer(struct space *s, uint64_t session, int delta, uint64_t now_us);
/* Drops sessions, with their grants, that had no connection since before_us. */
void space_expire(struct space *s, uint64_t before_us);

#endif
