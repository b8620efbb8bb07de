/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery after a start of the server. Intents are executed as soon as their targets are up;
 * operations on those files wait for that. Orphans are removed when all sessions from before the
 * restart have reclaimed their opens or have ended. Until then every file counts as open. There
 * is no fixed grace period. Owned by the loop.
 */
#ifndef LEAT_MDS_RECOVERY_H
#define LEAT_MDS_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proto/types.h"

struct mds;

struct recovery {
	bool sessions_back; /* all sessions from before have returned or ended */
	uint64_t *orphans;  /* inode numbers, found at the start or unlinked since */
	uint32_t n_orphans, cap_orphans;
	uint32_t n_intents;  /* not yet finished */
	uint32_t n_starting; /* of these: not yet in the queue for their file */
};

/* Reads intents and orphans, locks the files of the intents, and starts a fiber for each intent.
 * Called before requests are served. Returns 0, -LE_CORRUPT_STORE, -LE_NOMEM or the error of the
 * store. Yields. */
int recovery_start(struct mds *m) CHECK_RESULT;
/* Frees the list of orphans. Does not yield. */
void recovery_fini(struct mds *m);
/* Notes an inode that has lost its last name before all sessions have returned. It is removed then,
 * if it is not open. Returns 0 or -LE_NOMEM. Does not yield. */
int recovery_orphan(struct mds *m, struct ino ino) CHECK_RESULT;
/* Called when a session from before the restart has returned or ended. If none is missing, sets
 * sessions_back and starts a fiber that removes the orphans. Does not yield. */
void recovery_session(struct mds *m);

#endif
