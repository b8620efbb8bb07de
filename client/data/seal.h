/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compresses and checksums the blocks of a write before it is sent. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_SEAL_H
#define LEAT_CLIENT_DATA_SEAL_H

struct wreq;

/* Prepares a write for sending: compresses whole blocks if the layout enables compression, and
 * encodes the pieces. Called once for each wreq. Returns 0 or -LE_IO without a free slot by the
 * deadline. Yields. */
int wreq_seal(struct wreq *w);

#endif
