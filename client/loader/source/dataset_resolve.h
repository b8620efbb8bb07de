/* SPDX-License-Identifier: Apache-2.0 */
/* From the string that the user passes for a data set to its files, its index and a volume. */
#ifndef LEAT_CLIENT_LOADER_SOURCE_DATASET_RESOLVE_H
#define LEAT_CLIENT_LOADER_SOURCE_DATASET_RESOLVE_H

#include "client/loader/source/dataset.h"

/* Finds `what`, a path, a pattern or a name, and fills in vol, root, index and manifest of ds.
 * Part of leat_dataset_open, in a fiber of ds->io.loop. Errors are in d too. Yields. */
int dataset_resolve(struct leat_dataset *ds, const char *what, const struct leat_dataset_options *o,
		    struct detail *d) CHECK_RESULT;

#endif
