/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start reads of the index. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_STORE_LOAD_H
#define LEAT_OSSD_CHUNK_STORE_LOAD_H

#include "ossd/chunk/chunk_store.h"

/* Loads replay rows, inventory and free map at the start. */
int store_load_index(struct chunk_store *s) CHECK_RESULT;

#endif
