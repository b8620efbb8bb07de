/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches on a CUDA device: the loader's side of cuda.h. Each slot of a loader with a device has a
 * cuda_slot; the loader makes these calls as a batch changes its state.
 */
#ifndef LEAT_CLIENT_LOADER_GPU_DEVICE_H
#define LEAT_CLIENT_LOADER_GPU_DEVICE_H

#include "client/loader/batch/loader.h"

/* Opens the device that the options name, before there are slots. Sets leat_last_error on
 * failure. */
int device_open(struct leat_loader *ld, const struct leat_loader_options *o) CHECK_RESULT;
/* Makes the cuda_slot of a slot, if there is a device. */
int device_add_slot(struct leat_batch *b) CHECK_RESULT;
/* Waits until the slot's memory, which must exist, may be written. Yields. */
int device_prepare(struct leat_batch *b) CHECK_RESULT;
/* Starts the copy of a filled batch to the device. Does not yield. */
int device_send(struct leat_batch *b) CHECK_RESULT;

#endif
