/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the sample index of a set of files. Reads only what the format needs: the beginnings of
 * some plain files; headers and directories of archives (choose.h, formats/format.h). */
#ifndef LEAT_CLIENT_DATASET_INDEX_BUILD_H
#define LEAT_CLIENT_DATASET_INDEX_BUILD_H

#include "client/dataset/error_detail.h"
#include "client/dataset/formats/files.h"
#include "client/dataset/formats/index.h"
#include "client/dataset/vol.h"

struct index_source {
	/* Sorted by the bytes of their path, which is relative to the folder. */
	const struct files_entry *entries;
	uint32_t n;
	/* "tar", "tfrecord", …; NULL: the format with the most bytes (choose.h). The index
	 * records files of other formats as left out. */
	const char *format;
};

/* Makes the index; reads several files concurrently. On failure d has file and offset. Yields. */
int index_build(struct vol *v, const char *dir, const struct index_source *from,
		struct sample_index **ret_index, struct detail *d) CHECK_RESULT;
/* True if index_build for that format (NULL: the one with the most bytes) would make x from the
 * same files. False also if that is unknown. Does not yield. */
bool index_is_of(const struct sample_index *x, const char *format);

#endif
