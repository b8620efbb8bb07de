/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches that are read straight into device memory (gds.h). That requires that the processor need
 * not read the bytes: this process has verified all their blocks before, or the files have no
 * manifest; no member has a checksum or is packed; and there is no decoder.
 */
#ifndef LEAT_CLIENT_LOADER_GPU_DIRECT_H
#define LEAT_CLIENT_LOADER_GPU_DIRECT_H

#include "client/loader/batch/loader.h"

/* Reads a planned batch with a prepared slot into device memory, if that is possible and faster.
 * False: the batch was not read and must be read through host memory. Yields. */
bool direct_fill(struct leat_batch *b);
/* Measures the read through host memory. Call it after the batch was read and device_send.
 * Yields. */
void direct_after_send(struct leat_batch *b);

#endif
