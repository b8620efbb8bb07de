/* Makes the sample index of a set of files, reading only what the format needs: nothing of plain
 * files, the headers of tar archives. */
#ifndef LEAT_LOADER_BUILD_H
#define LEAT_LOADER_BUILD_H

#include "client/loader/formats/files.h"
#include "client/loader/index.h"
#include "client/stage/detail.h"
#include "client/stage/vol.h"

/* Entries sorted by the bytes of their path, relative to dir. If any is called *.tar, the data set
 * consists of these (and other files are left out), else of plain files. Several archives are read
 * at once. Yields. On failure d names the archive and the offset. */
int index_build(struct vol *v, const char *dir, const struct files_entry *entries, uint32_t n,
		struct sample_index **ret_index, struct detail *d) CHECK_RESULT;

#endif
