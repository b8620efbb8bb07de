/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a data set as a volume that returns only bytes that match its manifest. It reads and
 * compares whole blocks and replaces wrong ones (mend.h); a read fails if no source has right ones.
 * For making a sample index. Belongs to the fiber that made it.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_CHECKED_H
#define LEAT_CLIENT_LOADER_SOURCE_CHECKED_H

#include "client/loader/source/dataset.h"

/* Makes a volume of ds->root on ds->vol, for opening and reading only. d receives the reason of
 * each failed read. -LE_NOMEM */
int checked_vol_create(struct leat_dataset *ds, struct detail *d,
		       struct vol **ret_vol) CHECK_RESULT;

#endif
