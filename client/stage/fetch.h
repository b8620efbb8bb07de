/*
 * Brings one copy to READY: verifies what is there, fetches what is missing, block by block, and
 * makes it durable. Runs as fibers of one loop; the store is locked by the caller.
 */
#ifndef LEAT_STAGE_FETCH_H
#define LEAT_STAGE_FETCH_H

#include "client/include/leat/leat_stage.h"
#include "client/stage/local_store.h"
#include "client/stage/manifest.h"
#include "client/stage/vol.h"

struct fetch_report {
	uint64_t bytes_verified, bytes_moved, files;
};

struct fetch_options {
	struct local_store *store;
	const struct manifest *manifest;
	struct vol *source; /* NULL: only verify what is there */
	const char *source_dir;
	void (*report)(void *arg, const struct fetch_report *r);
	void *arg;
	const volatile int *cancel;
};

/* Ends with all data durable and under its name, the bitmap complete, but without READY. On failure
 * *ret_code (enum leat_stage_code) says whose fault it is, d what and where. Yields. */
int fetch_run(const struct fetch_options *opts, struct fetch_report *ret_report, int *ret_code,
	      struct detail *d) CHECK_RESULT;

/* Reads every block of the finished files; clears the bits of chunks that are wrong and counts
 * them. Yields. */
int fetch_verify(const struct fetch_options *opts, struct fetch_report *ret_report,
		 uint64_t *ret_n_bad, int *ret_code, struct detail *d) CHECK_RESULT;

#endif
