/*
 * The files of a data set as a volume whose bytes are those of its manifest, or not to be had:
 * whole blocks are read and compared, wrong ones replaced (mend.h). For who looks at files while a
 * sample index is made. Belongs to the fiber that made it.
 */
#ifndef LEAT_LOADER_CHECKED_H
#define LEAT_LOADER_CHECKED_H

#include "client/loader/dataset.h"

/* Of ds->root on ds->vol, to be opened and read only. Why a read fails is told in d. */
int checked_vol_create(struct leat_dataset *ds, struct detail *d,
		       struct vol **ret_vol) CHECK_RESULT;

#endif
