/* Where new files go: the layout of a new inode from its directory's default and the state of the
 * cluster. */
#ifndef LEAT_MDS_PLACEMENT_H
#define LEAT_MDS_PLACEMENT_H

#include "mds/cluster.h"
#include "mds/params.h"

/* dir: the directory's default. -LE_NOT_READY while there are no chains. Does not yield, allocates
 * nothing. */
int placement_choose(struct cluster *c, const struct mds_params *p, const struct layout *dir,
		     struct ino ino, struct layout *ret_layout) CHECK_RESULT;
/* Whether a layout that somebody asks for may be had (zero members: default). -LE_INVAL */
int placement_check(const struct layout *l) CHECK_RESULT;

#endif
