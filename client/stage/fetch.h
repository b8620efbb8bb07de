/*
 * Brings one copy to READY: verifies what is there, fetches what is missing, chunk by chunk in the
 * order of a plan, and makes it durable. Runs as fibers of one loop; the store is locked by the
 * caller.
 *
 *   fetch_create → fetch_run → fetch_destroy; meanwhile fetch_give hands chunks to other nodes.
 */
#ifndef LEAT_STAGE_FETCH_H
#define LEAT_STAGE_FETCH_H

#include "client/include/leat/leat_stage.h"
#include "client/stage/local_store.h"
#include "client/stage/manifest.h"
#include "client/stage/throttle.h"
#include "client/stage/vol.h"
#include "common/rt/slot.h"

struct fetch;
struct rows;
struct transport;

struct fetch_report {
	uint64_t bytes_verified, files;
	uint64_t bytes_source, bytes_peers; /* moved: from where */
	uint64_t narrowed;                  /* files that fewer may read than at the source */
	uint64_t source_us;                 /* how long the source takes for a chunk, about */
};

/* Whom to ask for a chunk. */
enum fetch_ask {
	ASK_OWNER, /* whoever is to read it from the source, or has it */
	ASK_READY, /* others wait for it here: only those who have all */
	ASK_ALL    /* the source has failed: whoever has it */
};

struct fetch_options {
	struct local_store *store;
	const struct manifest *manifest;
	/* The manifest's rows as the copy granted them last; NULL: not known. */
	const struct rows *had;
	struct vol *source; /* NULL: only verify what is there */
	const char *source_dir;
	void (*report)(void *arg, const struct fetch_report *r);
	void *arg;
	const volatile int *cancel;
	/* Chunk numbers in the order in which they are wanted, each once; NULL: as they lie. The
	 * first n_window of them are the first window: `window` is called once they are durable. */
	const uint64_t *plan;
	uint64_t n_plan, n_window;
	void (*window)(void *arg);
	struct throttle *throttle; /* of reads from the source; NULL: none */
	struct slot_pool *pool;    /* slots of MANIFEST_CHUNK bytes; NULL: its own, ... */
	struct transport *transport; /* ... which this one receives into; NULL: nothing comes */
	/* Where in the order this node begins, as a part of 2^32: so that not all of them want the
	 * same chunks at the same time. Not with a plan. */
	uint32_t turn;
	/* Other nodes: verified bytes of a chunk into the slot, or a status: then the source is
	 * asked. NULL: there are none. Yields. */
	int (*from_peer)(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask);
};

int fetch_create(const struct fetch_options *opts, struct detail *d,
		 struct fetch **ret_fetch) CHECK_RESULT;
/* Ends with all data durable and under its name, the bitmap complete, but without READY. On failure
 * *ret_code (enum leat_stage_code) says whose fault it is, d what and where. Yields. */
int fetch_run(struct fetch *ft, struct fetch_report *ret_report, int *ret_code) CHECK_RESULT;
void fetch_destroy(struct fetch *ft); /* NULL is fine. Waits for fetch_give. Yields. */

/* A verified chunk for somebody else, in a slot of the pool: as soon as it is here, at most until
 * the deadline. Who waits holds no slot, so that nodes that wait for each other cannot lack them.
 * -LE_AGAIN: not here; -LE_NOT_READY: the run has not begun. Yields. */
enum fetch_give_how {
	GIVE_PRESENT, /* only what is here */
	GIVE_COMING,  /* also what is being fetched just now */
	GIVE_DEMAND   /* is fetched from the source now if nobody does */
};
int fetch_give(struct fetch *ft, uint64_t chunk, enum fetch_give_how how, uint64_t deadline_us,
	       struct slot_pool *pool, struct slot **ret_slot) CHECK_RESULT;

/* Reads every block of the finished files; clears the bits of chunks that are wrong and counts
 * them. Yields. */
int fetch_verify(const struct fetch_options *opts, struct fetch_report *ret_report,
		 uint64_t *ret_n_bad, int *ret_code, struct detail *d) CHECK_RESULT;

/* The file that a chunk belongs to. */
uint32_t manifest_file_of_chunk(const struct manifest *m, uint64_t chunk);

#endif
