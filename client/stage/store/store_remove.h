/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of a copy. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_REMOVE_H
#define LEAT_CLIENT_STAGE_STORE_STORE_REMOVE_H

#include "client/stage/store/local_store.h"

/* Removes the copy, which the caller has locked: READY first, then the bitmap, then its folders.
 * -LE_BUSY: it is leased or pinned. Yields. */
int store_remove(struct local_store *s) CHECK_RESULT;

#endif
