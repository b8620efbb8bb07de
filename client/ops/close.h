/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flush and fsync of a file, and the close request, which the client sends in the background.
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_OPS_CLOSE_H
#define LEAT_CLIENT_OPS_CLOSE_H

struct ll_file;

/* Closes the file in the background and frees it, with its reference to the inode. Its locks must
 * have been released. Does not yield. */
void file_close_start(struct ll_file *f);

#endif
