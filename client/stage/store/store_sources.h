/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy that a name or a source directory stood for when it was staged last: DIR/.leat/sources.
 * A key is "name@version", a directory's key (copies_dir_key, manifest_scan_key), or
 * "unpacked-ID".
 */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_SOURCES_H
#define LEAT_CLIENT_STAGE_STORE_STORE_SOURCES_H

#include "client/stage/store/local_store.h"

/* Returns the id that was noted for the key. -LE_NOENT: none. Yields. */
int store_recall_source(struct env *env, const char *to, const char *key,
			char ret_id[MANIFEST_ID_SIZE]) CHECK_RESULT;
/* Notes the id for the key; durable. Yields. */
int store_note_source(struct env *env, const char *to, const char *key,
		      const char *id) CHECK_RESULT;

#endif
