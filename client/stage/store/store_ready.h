/* SPDX-License-Identifier: Apache-2.0 */
/* The marks READY and SHARE of a copy: written last, removed first. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_READY_H
#define LEAT_CLIENT_STAGE_STORE_STORE_READY_H

#include "client/stage/store/local_store.h"

/* Returns whether the mark READY is set: all files of the manifest are there. Yields. */
bool store_is_ready(struct local_store *s);
/* Returns whether the mark SHARE is set: all files of the share are there. Yields. */
bool store_is_shared(struct local_store *s);
/* Sets READY, or with a share SHARE; durable. Yields. */
int store_set_ready(struct local_store *s, const struct manifest *m) CHECK_RESULT;
/* Removes both marks, and the copy's inode index before them; durable. Yields. */
int store_clear_ready(struct local_store *s) CHECK_RESULT;
/* Returns whether every file of m (and of the share) exists with its size, and every folder and
 * link. Reads no content. Yields. */
bool store_looks_whole(struct local_store *s, const struct manifest *m);

#endif
