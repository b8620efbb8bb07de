/*
 * The CUDA driver, where there is one: looked for by name when it is first wanted (libcuda.so.1, so
 * nothing of it is needed to build or to run Leat), and of it no more than registering memory,
 * copying it to a device on a stream of our own, and events. Names and signatures are those of the
 * CUDA driver API reference; we declare what we use.
 *
 * A device belongs to one loader. Its slots stand for the loader's slots: host memory that is
 * registered (pinned), and device memory of the same size where batches are delivered:
 *
 *   attach -> settle -> (the host memory is filled) -> send -> use, copy -> release -> settle ...
 *
 * Nothing of a slot is used again before the streams that were named to `use` and `copy` are done
 * with it, and no call but settle, attach and detach waits for a device. Any thread may call; a
 * slot's calls are ordered by its owner, but use and copy may come from several threads at once.
 */
#ifndef LEAT_LOADER_CUDA_H
#define LEAT_LOADER_CUDA_H

#include <stdbool.h>

#include "client/include/leat/leat_loader.h"
#include "client/stage/detail.h"

#define CUDA_STREAMS_MAX 8u /* that read one batch */

struct cuda_device;
struct cuda_slot;
struct gds;

/*
 * name: "cuda", "cuda:N", or NULL when batches stay in host memory. pinned: enum leat_pinned.
 * *ret_device is NULL where nothing is to be done: no name, and no driver that may be used. A
 * device keeps its primary context. -LE_NODEV: there is none, or pinned memory is required and
 * there is no driver; says so in d.
 */
int cuda_open(const char *name, int pinned, struct cuda_device **ret_device,
	      struct detail *d) CHECK_RESULT;
void cuda_close(struct cuda_device *dev); /* after its slots; NULL is fine */

/* Before its slots: their device memory is registered with cuFile too. Borrowed. */
void cuda_use_gds(struct cuda_device *dev, struct gds *g);

int cuda_slot_create(struct cuda_device *dev, struct cuda_slot **ret_slot) CHECK_RESULT;
void cuda_slot_destroy(struct cuda_slot *s); /* NULL is fine, here and below */

/* Memory for it. Takes long for large ones: every page is made and pinned. */
int cuda_slot_attach(struct cuda_slot *s, void *base, uint64_t len, struct detail *d) CHECK_RESULT;
bool cuda_slot_attached(const struct cuda_slot *s);
/* Waits until nothing uses the memory; then it is ordinary memory again. */
void cuda_slot_detach(struct cuda_slot *s);
/* Would settle have to wait? */
bool cuda_slot_is_busy(struct cuda_slot *s);
/* Waits until the host memory may be written again. */
int cuda_slot_settle(struct cuda_slot *s, struct detail *d) CHECK_RESULT;
/* Starts the copy of the first len bytes, behind everything that still reads the device memory. */
int cuda_slot_send(struct cuda_slot *s, uint64_t len, struct detail *d) CHECK_RESULT;
/* The stream waits for that copy; what it does until release is waited for before the next one. */
int cuda_slot_use(struct cuda_slot *s, void *stream, struct leat_device_view *ret_view,
		  struct detail *d) CHECK_RESULT;
/* Copies len bytes from the host memory to the caller's device memory, in the stream. */
int cuda_slot_copy(struct cuda_slot *s, uint64_t dst, uint64_t len, void *stream,
		   struct detail *d) CHECK_RESULT;
/* The batch was given back: no use, no copy comes after this. */
void cuda_slot_release(struct cuda_slot *s);

/*
 * Others than our stream fill the device memory (gds.h): in place of send, between empty, which
 * waits for everybody who uses it, and filled. Each waits or fails; none says why, for then the
 * batch goes the other way. enter and leave: the context, in the calling thread.
 */
int cuda_slot_empty(struct cuda_slot *s, uint64_t *ret_mem) CHECK_RESULT;
void cuda_slot_filled(struct cuda_slot *s);
int cuda_slot_enter(struct cuda_slot *s) CHECK_RESULT;
void cuda_slot_leave(void);
/* Waits for the copy that was sent. */
int cuda_slot_arrived(struct cuda_slot *s) CHECK_RESULT;

uint64_t cuda_slot_pinned(const struct cuda_slot *s); /* bytes */
bool cuda_slot_delivers(const struct cuda_slot *s);

#endif
