/* Makes the sample index of a set of files, reading only what the format needs: the beginnings of
 * some plain files, headers and directories of the others (choose.h, formats/format.h). */
#ifndef LEAT_LOADER_BUILD_H
#define LEAT_LOADER_BUILD_H

#include "client/loader/formats/files.h"
#include "client/loader/index.h"
#include "client/stage/detail.h"
#include "client/stage/vol.h"

struct index_source {
	/* Sorted by the bytes of their path, relative to the folder. */
	const struct files_entry *entries;
	uint32_t n;
	/* "tar", "tfrecord", …; NULL: what most bytes are (choose.h). Files that are not of the
	 * format are left out, and told by the index. */
	const char *format;
};

/* Several files are read at once. Yields. On failure d names the file and the offset. */
int index_build(struct vol *v, const char *dir, const struct index_source *from,
		struct sample_index **ret_index, struct detail *d) CHECK_RESULT;
/* Of an index of the same files: is it what index_build would make for that format, NULL: what most
 * bytes are? False also where nobody can tell. */
bool index_is_of(const struct sample_index *x, const char *format);

#endif
