/* SPDX-License-Identifier: Apache-2.0 */
/* Reading rows of the kv store that are not cached: sessions, quotas, attributes, intents. Only
 * durable rows are visible. Owned by the store's loop. */
#ifndef LEAT_MDS_STORE_SCAN_H
#define LEAT_MDS_STORE_SCAN_H

#include "common/kv/kv.h"
#include "mds/store/keys.h"

struct store;

/* Calls each() for all rows from begin up to end (not included), until it returns other than 0.
 * Returns 0 or the error of the kv store. Yields. */
int store_scan(struct store *s, const struct key *begin, const struct key *end,
	       int (*each)(void *arg, const void *key, size_t key_len, const void *value,
			   size_t len),
	       void *arg) CHECK_RESULT;
/* Like store_scan, for all rows with keys that begin with k. Yields. */
int store_scan_prefix(struct store *s, struct key k,
		      int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				  size_t len),
		      void *arg) CHECK_RESULT;
/* Reads one row. Returns 0, -LE_NOENT if there is none, or the error of the kv store. The caller
 * calls kv_value_fini. Yields. */
int store_get_record(struct store *s, struct key k, struct kv_value *ret_v) CHECK_RESULT;

#endif
