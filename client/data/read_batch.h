/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many small reads of one call (ll_pread_batch), grouped by object server. Owned by the client's
 * loop.
 */
#ifndef LEAT_CLIENT_DATA_READ_BATCH_H
#define LEAT_CLIENT_DATA_READ_BATCH_H

struct client;

/* Frees the memory that ll_pread_batch keeps for reuse. Does not yield. */
void read_batch_fini(struct client *c);

#endif
