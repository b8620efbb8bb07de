/* SPDX-License-Identifier: Apache-2.0 */
/* Which names a call may use, and whether a user may search a directory. Pure functions. */
#ifndef LEAT_CLIENT_OPS_NAME_CHECK_H
#define LEAT_CLIENT_OPS_NAME_CHECK_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/proto/wire.h"

struct client;
struct cred;
struct inode;

/* Returns true for "." and "..". */
bool name_is_dots(struct bytes name);

/* Returns true if the name's length is valid; else false with -LE_NOENT or -LE_NAMETOOLONG in
 * *ret_status. */
bool name_may_be_used(struct bytes name, int *ret_status);

/* Returns true if the user may certainly search the directory: the user is privileged, the kernel
 * has checked the right, or valid cached mode bits grant it. */
bool dir_may_search(const struct client *c, const struct cred *cred, const struct inode *dir);

#endif
