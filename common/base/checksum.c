/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 by libxxhash; with run-time choice of the vector unit where the library offers it. */
#define XXH_STATIC_LINKING_ONLY
#include "common/base/checksum.h"

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

uint64_t checksum64(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

uint64_t checksum64_seed(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

uint64_t checksum64_iov(const struct iovec *iov, int n_iov)
{
	if (n_iov == 1)
		return checksum64(iov[0].iov_base, iov[0].iov_len);
	XXH3_state_t state;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	for (int i = 0; i < n_iov; i++) {
		if (iov[i].iov_len > 0)
			XXH3_64bits_update(&state, iov[i].iov_base, iov[i].iov_len);
	}
	return XXH3_64bits_digest(&state);
}
