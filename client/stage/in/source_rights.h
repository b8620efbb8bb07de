/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what the source of a data set grants now, row by row of a manifest, by one listing of each
 * folder that is in the manifest. Other names in a folder cost their listing only. Names that
 * appear or vanish meanwhile are no error.
 *
 *   found at the path of a row          the row gets
 *   the file of the row, unchanged      its rights, wider ones too
 *   another file, or it was changed     the readers of that file that could read the copy before
 *   the folder of the row, if it holds  its rights
 *     something of the manifest, or if
 *     the manifest has nothing in it
 *   any other folder                    the readers of that folder that could read the copy before
 *   nothing, or access is denied        its owner alone
 *
 * It is the file or folder of the row if it has its inode and, where the file system has one, its
 * time of birth.
 */
#ifndef LEAT_CLIENT_STAGE_IN_SOURCE_RIGHTS_H
#define LEAT_CLIENT_STAGE_IN_SOURCE_RIGHTS_H

#include <stdint.h>

#include "client/dataset/manifest.h"

struct source_look {
	struct vol *v;
	const char *source; /* the folder, by any path */
	bool above_only;    /* the rows have their rights already */
	/* Called after n names were looked up: waits as long as the rate limit says. A status
	 * ends the call. NULL: no limit. */
	int (*pace)(void *arg, uint32_t n);
	void *arg;
};
/* Sets the rights of m's rows, and *ret_above to those of the folders above the source,
 * malloc'd, with their access lists in m's pool; NULL: the source is missing. Fails if the
 * source cannot be read (no server answers); m's rows are undefined then. Yields. */
int source_rights(const struct source_look *l, struct manifest *m, struct rights **ret_above,
		  uint32_t *ret_n) CHECK_RESULT;

#endif
