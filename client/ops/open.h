/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ll.h that open a file: open, create, tmpfile. Owned by the client's loop. */
#ifndef LEAT_CLIENT_OPS_OPEN_H
#define LEAT_CLIENT_OPS_OPEN_H

#include <stdint.h>

#include "common/base/status.h"

struct client;
struct cred;
struct inode;
struct ll_file;

/* Creates the open file for one that the previous process had open, for ll_resume_file. Takes over
 * a reference of the caller on success. Returns 0 or -LE_NOMEM. Does not yield. */
int file_resume(struct client *c, struct inode *i, const struct cred *cred, uint32_t flags,
		struct ll_file **ret_file) CHECK_RESULT;

#endif
