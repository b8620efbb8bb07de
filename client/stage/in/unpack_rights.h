/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of unpacked files. */
#ifndef LEAT_CLIENT_STAGE_IN_UNPACK_RIGHTS_H
#define LEAT_CLIENT_STAGE_IN_UNPACK_RIGHTS_H

#include "client/dataset/manifest.h"

/* Gives the rows of `made`, which was unpacked from the data set `archives`, the rights that the
 * archives have now: a file those of its archive, a folder those to read and search it. A row
 * that could come from several archives gets what all of them grant. -LE_NOMEM. Yields. */
int unpack_rights(struct manifest *made, const struct manifest *archives) CHECK_RESULT;

#endif
