/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's side of /dev/fuse, over a pair of sockets that keep messages apart. It sends
 * requests, and takes replies and notifications, as fs/fuse of Linux does.
 *
 * Used by one fiber at a time. A wait lets the daemon run, which is on the same loop, and fails the
 * test after KERNEL_PATIENCE_MS.
 */
#ifndef LEAT_TESTS_UNIT_FUSE_FAKE_KERNEL_H
#define LEAT_TESTS_UNIT_FUSE_FAKE_KERNEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>
#include <linux/fuse.h>

#define KERNEL_PATIENCE_MS 5000u
#define KERNEL_REPLY_MAX   (160u << 10)
#define KERNEL_STASH       32u
#define KERNEL_RESENT      (1ull << 63) /* in the number of a request that is sent again */

/* linux/fuse.h of Linux 6.9 */
#define NOTIFY_RESEND 7

struct kernel_reply {
	uint64_t unique;
	int error; /* an errno; 0: none */
	size_t len;
	union {
		uint8_t data[KERNEL_REPLY_MAX];
		struct fuse_entry_out entry;
		struct fuse_attr_out attr;
		struct fuse_open_out open;
		struct fuse_write_out write;
		struct fuse_lseek_out lseek;
		struct fuse_lk_out lk;
		struct fuse_statfs_out statfs;
		struct fuse_getxattr_out xattr;
		struct fuse_init_out init;
		struct {
			struct fuse_entry_out entry;
			struct fuse_open_out open;
		} create;
		struct {
			struct fuse_ioctl_out ioctl;
			uint8_t ioctl_data[64];
		};
	};
};

struct kernel_inval {
	uint64_t node;
	int64_t off, len; /* off -1: attributes only */
};

struct fake_kernel {
	int fd, device_fd; /* device_fd: the daemon's end; it is duplicated for each daemon */
	uint64_t unique;   /* of the last request */
	uint32_t uid, gid; /* of the next requests */
	pid_t pid;
	uint64_t init_flags; /* what this kernel offers */
	/* Replies that arrived while another one was waited for. */
	struct kernel_reply *stash[KERNEL_STASH];
	uint32_t n_stash;
	struct kernel_inval invals[256];
	uint32_t n_invals, n_resends;
};

void kernel_open(struct fake_kernel *k);
void kernel_close(struct fake_kernel *k);
/* Returns the daemon's end, for another daemon. */
int kernel_device(const struct fake_kernel *k);

struct kernel_part {
	const void *data;
	size_t len;
};
/* A string with its zero byte. */
#define NAME(s) ((struct kernel_part){(s), strlen(s) + 1})
#define ARG(a)  ((struct kernel_part){&(a), sizeof(a)})

/* Sends a request of up to three parts, and returns its number. */
uint64_t kernel_send(struct fake_kernel *k, uint32_t opcode, uint64_t node,
		     const struct kernel_part *parts, uint32_t n);
/* Like kernel_send with a given number: for a request that is sent again. */
void kernel_send_as(struct fake_kernel *k, uint64_t unique, uint32_t opcode, uint64_t node,
		    const struct kernel_part *parts, uint32_t n);
/* Waits for the reply to a request. Returns its errno. */
int kernel_wait(struct fake_kernel *k, uint64_t unique, struct kernel_reply *ret_reply);
/* Returns whether the reply has arrived. Waits first for as long as the daemon needs for another
 * request. */
bool kernel_has_reply(struct fake_kernel *k, uint64_t unique);
/* Sends a request and waits for the reply. Returns its errno. */
#define kernel_call(k, opcode, node, ret_reply, ...)                                               \
	kernel_wait(k,                                                                             \
		    kernel_send(k, opcode, node, (const struct kernel_part[]){__VA_ARGS__},        \
				sizeof((const struct kernel_part[]){__VA_ARGS__}) /                \
					sizeof(struct kernel_part)),                               \
		    ret_reply)
/* Sends a signal for the caller of that request. */
void kernel_interrupt(struct fake_kernel *k, uint64_t unique);
/* Sends INIT as Linux 6.9 does, and returns the reply. */
void kernel_init(struct fake_kernel *k, struct kernel_reply *ret_reply);

/* Takes messages for up to ms milliseconds or until there are n notifications. */
void kernel_take(struct fake_kernel *k, uint32_t n, uint32_t ms);
/* Returns whether a notification for that inode has arrived. attr: one of attributes only. */
bool kernel_was_notified(struct fake_kernel *k, uint64_t node, bool attr);

/* ---- what programs do ---- */
int kernel_lookup(struct fake_kernel *k, uint64_t dir, const char *name, struct kernel_reply *r);
int kernel_getattr(struct fake_kernel *k, uint64_t node, struct kernel_reply *r);
/* Opens a file and returns its number. Asserts success. */
uint64_t kernel_open_file(struct fake_kernel *k, uint64_t node, uint32_t flags);
/* Creates and opens a file: returns *ret_node and the file's number. Asserts success. */
uint64_t kernel_create(struct fake_kernel *k, const char *name, uint32_t mode, uint64_t *ret_node);
/* Like a program that reads and writes without the page cache. */
int kernel_write(struct fake_kernel *k, uint64_t node, uint64_t fh, uint64_t off, const void *buf,
		 uint32_t len);
int kernel_read(struct fake_kernel *k, uint64_t node, uint64_t fh, uint64_t off, uint32_t len,
		struct kernel_reply *r);
void kernel_release(struct fake_kernel *k, uint64_t node, uint64_t fh);
uint64_t kernel_opendir(struct fake_kernel *k, uint64_t node);

#endif
