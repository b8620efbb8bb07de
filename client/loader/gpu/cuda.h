/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, if there is one. It is loaded by name when it is first needed (libcuda.so.1), so
 * Leat is built and runs without it. Only three parts of it are used: registering memory, copying
 * memory to a device in the loader's stream, and events. Names and signatures are those of the CUDA
 * driver API reference; cuda.c declares those that are used.
 *
 * A device belongs to one loader. It has a cuda_slot for each slot of the loader: host memory that
 * is registered (pinned), and device memory of the same size if batches are copied to the device:
 *
 *   attach -> settle -> (the host memory is filled) -> send -> use, copy -> release -> settle ...
 *
 * Memory of a slot is reused only when the streams that were passed to `use` and `copy` have
 * finished with it. Only settle, attach, detach, empty and arrived wait for a device. Any thread
 * may call. The owner of a slot orders the calls, but several threads may call use and copy
 * concurrently.
 */
#ifndef LEAT_CLIENT_LOADER_GPU_CUDA_H
#define LEAT_CLIENT_LOADER_GPU_CUDA_H

#include <stdbool.h>

#include "client/dataset/error_detail.h"
#include "client/include/leat/leat_loader.h"

#define CUDA_STREAMS_MAX 8u /* streams that read one batch */

struct cuda_device;
struct cuda_slot;
struct gds;

/*
 * name: "cuda", "cuda:N", or NULL if batches stay in host memory. pinned: enum leat_pinned.
 * *ret_device is NULL if no device is named and there is no driver, or the driver may not be used.
 * A device retains its primary context. -LE_NODEV, with d: the device does not exist, or pinned
 * memory is required and there is no driver.
 */
int cuda_open(const char *name, int pinned, struct cuda_device **ret_device,
	      struct detail *d) CHECK_RESULT;
void cuda_close(struct cuda_device *dev); /* after its slots are destroyed; NULL is fine */

/* Registers the device memory of slots with cuFile too. Call it before slots exist. g is
 * borrowed. */
void cuda_use_gds(struct cuda_device *dev, struct gds *g);

int cuda_slot_create(struct cuda_device *dev, struct cuda_slot **ret_slot) CHECK_RESULT;
void cuda_slot_destroy(struct cuda_slot *s); /* NULL is fine, here and below */

/* Registers host memory and allocates device memory. Slow for large slots: every page is
 * allocated and pinned. */
int cuda_slot_attach(struct cuda_slot *s, void *base, uint64_t len, struct detail *d) CHECK_RESULT;
bool cuda_slot_attached(const struct cuda_slot *s);
/* Waits until no stream uses the memory, and unregisters it. */
void cuda_slot_detach(struct cuda_slot *s);
/* True if cuda_slot_settle would wait. */
bool cuda_slot_is_busy(struct cuda_slot *s);
/* Waits until the host memory may be written. */
int cuda_slot_settle(struct cuda_slot *s, struct detail *d) CHECK_RESULT;
/* Starts the copy of the first len bytes, after all streams that still read the device memory. */
int cuda_slot_send(struct cuda_slot *s, uint64_t len, struct detail *d) CHECK_RESULT;
/* Makes the stream wait for that copy. The next copy waits for the stream's work up to release. */
int cuda_slot_use(struct cuda_slot *s, void *stream, struct leat_device_view *ret_view,
		  struct detail *d) CHECK_RESULT;
/* Copies len bytes from the host memory to the caller's device memory, in the stream. */
int cuda_slot_copy(struct cuda_slot *s, uint64_t dst, uint64_t len, void *stream,
		   struct detail *d) CHECK_RESULT;
/* Ends the use of the batch: neither use nor copy may be called until the next send. */
void cuda_slot_release(struct cuda_slot *s);

/*
 * In place of send, cuFile fills the device memory (gds.h), between empty, which waits for all
 * streams that use the memory, and filled. A failure has no reason: the batch is then read through
 * host memory. enter and leave set and restore the context of the calling thread.
 */
int cuda_slot_empty(struct cuda_slot *s, uint64_t *ret_mem) CHECK_RESULT;
void cuda_slot_filled(struct cuda_slot *s);
int cuda_slot_enter(struct cuda_slot *s) CHECK_RESULT;
void cuda_slot_leave(void);
/* Waits for the copy that send started. */
int cuda_slot_arrived(struct cuda_slot *s) CHECK_RESULT;

uint64_t cuda_slot_pinned(const struct cuda_slot *s); /* bytes that are pinned */
bool cuda_slot_delivers(const struct cuda_slot *s);

#endif
