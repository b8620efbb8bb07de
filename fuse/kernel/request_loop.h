/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the kernel: it attaches the mount to the device, reads requests from it, and
 * runs each as a fiber that calls libfuse and by it a handler of fs->ops.
 *
 * Owner: the mount's loop.
 */
#ifndef LEAT_FUSE_KERNEL_REQUEST_LOOP_H
#define LEAT_FUSE_KERNEL_REQUEST_LOOP_H

#include "fuse/mount.h"

struct mount_options;

/* The request that the current fiber serves. */
struct mount_request {
	struct leatfs *fs;
	struct slot
		*slot; /* holds the bytes of a large request; NULL: they were copied elsewhere */
	const uint8_t *data;
	size_t len;
};

/* Mounts at o->mountpoint and attaches to the device. device_fd: a device that is open for this
 * mount, or -1. Returns 0, or a status that has been logged. Does not yield. */
int session_mount(struct leatfs *fs, const struct mount_options *o, int device_fd) CHECK_RESULT;
/* Attaches to a device that is mounted already, but has not been served: libfuse owns fd from here
 * on. The kernel's first request is INIT. Returns 0, or a status that has been logged. Does not
 * yield. */
int session_attach(struct leatfs *fs, int fd) CHECK_RESULT;
/* Attaches to the device that a previous daemon served, before the client is created. Reads no
 * request. Gives libfuse the INIT of the first daemon again: -LE_INVAL if it would answer it
 * differently (fs->init_differs). Does not yield. */
int session_take_over(struct leatfs *fs, int device_fd) CHECK_RESULT;
/* Makes the kernel resend all requests that the previous daemon has not answered. Call when the
 * client has been created. Returns 0, or a status that has been logged. Does not yield. */
int session_ask_again(struct leatfs *fs) CHECK_RESULT;

/* Reads and starts requests until the kernel has unmounted the file system, or the loop stops; then
 * waits until all request fibers have ended, and returns false. Returns true after
 * session_hand_over, when all data are durable: the kernel resends the remaining requests to the
 * next daemon. Yields. */
bool session_serve(struct leatfs *fs);
/* Makes session_serve return for another daemon. Does not yield. */
void session_hand_over(struct leatfs *fs);

/* The request that the current fiber serves; a handler may call it until it first yields. NULL:
 * none. */
struct mount_request *session_request(void);
/* Releases the slot with the request's bytes for other requests. mr may be NULL. */
void session_request_bytes_end(struct mount_request *mr);

/* Unmounts, unless the kernel has unmounted already. Open files remain usable. */
void session_detach(struct leatfs *fs);
/* Like session_detach(), and frees the libfuse session. */
void session_end(struct leatfs *fs);

#endif
