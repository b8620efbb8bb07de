/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/store/scan.h"

#include "mds/store/store.h"

int store_get_record(struct store *s, struct key k, struct kv_value *ret_v)
{
	return kv_get(s->kv, k.b, k.len, ret_v);
}

int store_scan(struct store *s, const struct key *begin, const struct key *end,
	       int (*each)(void *arg, const void *key, size_t key_len, const void *value,
			   size_t len),
	       void *arg)
{
	struct kv_range range = {begin->b, begin->len, end->b, end->len, UINT32_MAX};
	bool more;

	return kv_scan(s->kv, NULL, &range, each, arg, &more);
}

int store_scan_prefix(struct store *s, struct key k,
		      int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				  size_t len),
		      void *arg)
{
	struct key end = key_after(k);

	return store_scan(s, &k, &end, each, arg);
}
