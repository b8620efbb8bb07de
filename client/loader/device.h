/*
 * Batches on a CUDA device: the loader's side of cuda.h. Each slot of a loader with a device has a
 * cuda_slot; these are the points of a batch's life at which something is done with it.
 */
#ifndef LEAT_LOADER_DEVICE_H
#define LEAT_LOADER_DEVICE_H

#include "client/loader/loader.h"

/* Of leat_loader_open, before the slots: pinned and device of the options. */
int device_open(struct leat_loader *ld, const struct leat_loader_options *o) CHECK_RESULT;
int device_add_slot(struct leat_batch *b) CHECK_RESULT;
/* In a fiber, when the slot has its memory: it may be written once this returns. Yields. */
int device_prepare(struct leat_batch *b) CHECK_RESULT;
/* When it was filled: the copy begins. */
int device_send(struct leat_batch *b) CHECK_RESULT;

#endif
