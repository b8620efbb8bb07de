/* SPDX-License-Identifier: Apache-2.0 */
/* A side that is the local file system. */
#ifndef LEAT_CLIENT_TREE_SIDE_LOCAL_H
#define LEAT_CLIENT_TREE_SIDE_LOCAL_H

#include "client/tree/side.h"

struct env;

/* System calls run on the workers of env, which is borrowed. -LE_NOMEM */
int side_local_create(struct env *env, uint32_t umask, struct side **ret_side) CHECK_RESULT;

#endif
