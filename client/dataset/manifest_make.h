/* SPDX-License-Identifier: Apache-2.0 */
/* Making a manifest from a scan. */
#ifndef LEAT_CLIENT_DATASET_MANIFEST_MAKE_H
#define LEAT_CLIENT_DATASET_MANIFEST_MAKE_H

#include "client/dataset/manifest.h"
#include "client/dataset/scan_list.h"

/* Receives progress while a manifest is made or a copy runs. report may be NULL. */
struct progress {
	void (*report)(void *arg, uint64_t bytes);
	void *arg;
	const volatile int *cancel; /* non-zero: stop with -LE_CANCELED. May be NULL */
};

/* Makes the manifest of the scanned directory dir: imports checksums if the volume has them,
 * else reads everything. -LE_STALE if a file differs from the scan or changes meanwhile. Yields. */
int manifest_make_from(struct vol *v, const char *dir, const struct scan *s,
		       struct manifest **ret_manifest, const struct progress *p,
		       struct detail *d) CHECK_RESULT;

#endif
