/* SPDX-License-Identifier: Apache-2.0 */
/* A side that is a Leat namespace. */
#ifndef LEAT_CLIENT_TREE_SIDE_LEAT_H
#define LEAT_CLIENT_TREE_SIDE_LEAT_H

#include "client/tree/side.h"

struct leat_fs;

/* fs is borrowed; the side belongs to its loop. -LE_NOMEM */
int side_leat_create(struct leat_fs *fs, struct side **ret_side) CHECK_RESULT;

#endif
