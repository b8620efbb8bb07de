/*
 * What the source of a data set grants now, row by row of a manifest: one listing of each folder
 * that the manifest tells of. What else lies there costs its listing and nothing more, and what
 * comes and goes meanwhile is no error.
 *
 *   the file of the row      its rights, wider ones too
 *   another file in its place, or the same one changed: who may read that one and might read the
 *                            copy before
 *   the folder of the row    its rights, if a file or folder of the manifest is in it, or nothing
 *                            was; else, and for another one in its place, who may read that one
 *                            and might read the copy before
 *   nothing, or what this process may not look at: its owner alone
 *
 * A thing is that of the row by its inode and, where the file system tells it, the time when it was
 * made.
 */
#ifndef LEAT_STAGE_SOURCE_RIGHTS_H
#define LEAT_STAGE_SOURCE_RIGHTS_H

#include <stdint.h>

#include "client/stage/manifest.h"

struct source_look {
	struct vol *v;
	const char *source; /* the folder, by any path */
	bool above_only;    /* the rows are known */
	/* So many names have been asked for: waits as long as that shall take. A status ends the
	 * look. NULL: at once. */
	int (*pace)(void *arg, uint32_t n);
	void *arg;
};
/* m's rows; and the rights of the folders above the source, malloc'd, their lists in m's pool: NULL
 * where it is not to be found. What is no answer (nobody can be asked) is an error, and m's rows
 * are then of no use. Yields. */
int source_rights(const struct source_look *l, struct manifest *m, struct rights **ret_above,
		  uint32_t *ret_n) CHECK_RESULT;

#endif
