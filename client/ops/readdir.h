/* SPDX-License-Identifier: Apache-2.0 */
/* Directory batches kept between calls of ll_readdir. Owned by the client's loop. */
#ifndef LEAT_CLIENT_OPS_READDIR_H
#define LEAT_CLIENT_OPS_READDIR_H

struct client;

/* Frees all batches. None may be in flight. Does not yield. */
void dir_forget_all(struct client *c);

#endif
