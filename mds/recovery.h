/*
 * After a start: intents are finished as soon as their targets are up (operations on those files
 * wait for it); orphans are removed when every session of the former incarnation has reclaimed its
 * opens or has expired. Until then no file counts as not open. Nothing ends after a fixed grace.
 */
#ifndef LEAT_MDS_RECOVERY_H
#define LEAT_MDS_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proto/types.h"

struct mds;

struct recovery {
	bool sessions_back; /* every session has returned or expired */
	uint64_t *orphans;  /* inode numbers, found at start or unlinked since */
	uint32_t n_orphans, cap_orphans;
	uint32_t n_intents;  /* not yet finished */
	uint32_t n_starting; /* of these: not yet in the queue for their file */
};

/* Reads intents and orphans, takes hold of the intents' files, starts the fibers. Before requests
 * are served. Yields. */
int recovery_start(struct mds *m) CHECK_RESULT;
void recovery_fini(struct mds *m);
/* An inode lost its last name while opens are still being reclaimed: it is looked at when they all
 * are. */
int recovery_orphan(struct mds *m, struct ino ino) CHECK_RESULT;
/* A session has returned or ended: if it was the last one, the orphans go. */
void recovery_session(struct mds *m);

#endif
