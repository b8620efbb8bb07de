/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fuse/fake_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/net.h"

#define SEND_SIZE (1 << 20)

void kernel_open(struct fake_kernel *k)
{
	int fds[2], size = SEND_SIZE;

	*k = (struct fake_kernel){.pid = getpid()};
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	for (int i = 0; i < 2; i++)
		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	k->fd = fds[0];
	k->device_fd = fds[1];
}

void kernel_close(struct fake_kernel *k)
{
	close(k->fd);
	close(k->device_fd);
	while (k->n_stash > 0)
		free(k->stash[--k->n_stash]);
}

int kernel_device(const struct fake_kernel *k)
{
	int fd = fcntl(k->device_fd, F_DUPFD_CLOEXEC, 3);

	assert_true(fd >= 0);
	return fd;
}

void kernel_send_as(struct fake_kernel *k, uint64_t unique, uint32_t opcode, uint64_t node,
		    const struct kernel_part *parts, uint32_t n)
{
	struct fuse_in_header h = {.len = sizeof(h),
				   .opcode = opcode,
				   .unique = unique,
				   .nodeid = node,
				   .uid = k->uid,
				   .gid = k->gid,
				   .pid = (uint32_t)k->pid};
	struct iovec iov[4] = {{&h, sizeof(h)}};

	assert_true(n < 4);
	for (uint32_t i = 0; i < n; i++) {
		iov[i + 1] = (struct iovec){(void *)parts[i].data, parts[i].len};
		h.len += (uint32_t)parts[i].len;
	}
	/* The daemon has not yet read the messages before. */
	while (writev(k->fd, iov, (int)n + 1) != h.len) {
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(fiber_sleep_us(1000), 0);
	}
}

uint64_t kernel_send(struct fake_kernel *k, uint32_t opcode, uint64_t node,
		     const struct kernel_part *parts, uint32_t n)
{
	k->unique += 2; /* odd ones are interrupts */
	kernel_send_as(k, k->unique, opcode, node, parts, n);
	return k->unique;
}

/* ---- messages from the daemon ---- */

static void take_notification(struct fake_kernel *k, const struct fuse_out_header *h,
			      const uint8_t *data)
{
	struct fuse_notify_inval_inode_out out;

	if (h->error == NOTIFY_RESEND) {
		k->n_resends++;
		return;
	}
	assert_int_equal(h->error, FUSE_NOTIFY_INVAL_INODE);
	memcpy(&out, data, sizeof(out));
	if (k->n_invals < sizeof(k->invals) / sizeof(k->invals[0]))
		k->invals[k->n_invals++] = (struct kernel_inval){out.ino, out.off, out.len};
}

/* Takes one message. Returns a reply, which the caller frees, or NULL: a notification, or
 * *ret_none. */
static struct kernel_reply *take_one(struct fake_kernel *k, bool *ret_none)
{
	struct kernel_reply *r = malloc(sizeof(*r));
	struct fuse_out_header h;
	struct iovec iov[2] = {{&h, sizeof(h)}, {r->data, sizeof(r->data)}};
	ssize_t n = readv(k->fd, iov, 2);

	*ret_none = n < 0 && errno == EAGAIN;
	if (n > 0) {
		assert_true(n >= (ssize_t)sizeof(h));
		assert_int_equal(h.len, n); /* the kernel refuses any other */
	}
	if (n > 0 && h.unique != 0) {
		r->unique = h.unique;
		r->error = -h.error;
		r->len = (size_t)n - sizeof(h);
		return r;
	}
	if (n > 0)
		take_notification(k, &h, r->data);
	free(r);
	return NULL;
}

static bool wait_readable(struct fake_kernel *k, uint64_t until_us)
{
	return net_poll(k->fd, POLLIN, until_us) > 0;
}

/* Takes all messages that have arrived. */
static void take_all(struct fake_kernel *k)
{
	bool none = false;

	while (!none) {
		struct kernel_reply *r = take_one(k, &none);

		if (r == NULL)
			continue;
		assert_true(k->n_stash < KERNEL_STASH);
		k->stash[k->n_stash++] = r;
	}
}

static bool stashed(struct fake_kernel *k, uint64_t unique, struct kernel_reply *ret_reply)
{
	for (uint32_t i = 0; i < k->n_stash; i++) {
		if (k->stash[i]->unique != unique)
			continue;
		if (ret_reply != NULL) {
			*ret_reply = *k->stash[i];
			free(k->stash[i]);
			k->stash[i] = k->stash[--k->n_stash];
		}
		return true;
	}
	return false;
}

int kernel_wait(struct fake_kernel *k, uint64_t unique, struct kernel_reply *ret_reply)
{
	uint64_t until = loop_deadline_ms(KERNEL_PATIENCE_MS);

	take_all(k);
	while (!stashed(k, unique, ret_reply)) {
		if (!wait_readable(k, until))
			fail_msg("no reply to request %llu", (unsigned long long)unique);
		take_all(k);
	}
	return ret_reply->error;
}

bool kernel_has_reply(struct fake_kernel *k, uint64_t unique)
{
	static struct kernel_reply r;

	(void)kernel_call(k, FUSE_STATFS, 1, &r, {NULL, 0});
	return stashed(k, unique, NULL);
}

void kernel_take(struct fake_kernel *k, uint32_t n, uint32_t ms)
{
	uint64_t until = loop_deadline_ms(ms);

	take_all(k);
	while (k->n_invals < n && wait_readable(k, until))
		take_all(k);
}

bool kernel_was_notified(struct fake_kernel *k, uint64_t node, bool attr)
{
	take_all(k);
	for (uint32_t i = 0; i < k->n_invals; i++)
		if (k->invals[i].node == node && (k->invals[i].off < 0) == attr)
			return true;
	return false;
}

void kernel_interrupt(struct fake_kernel *k, uint64_t unique)
{
	struct fuse_interrupt_in in = {.unique = unique};
	struct kernel_part part = ARG(in);

	kernel_send_as(k, unique | 1, FUSE_INTERRUPT, 0, &part, 1);
}

void kernel_init(struct fake_kernel *k, struct kernel_reply *ret_reply)
{
	struct fuse_init_in in = {.major = FUSE_KERNEL_VERSION,
				  .minor = 40,
				  .max_readahead = 1 << 20,
				  .flags = (uint32_t)k->init_flags,
				  .flags2 = (uint32_t)(k->init_flags >> 32)};

	assert_int_equal(kernel_call(k, FUSE_INIT, 0, ret_reply, ARG(in)), 0);
}

/* ---- what programs do ---- */

int kernel_lookup(struct fake_kernel *k, uint64_t dir, const char *name, struct kernel_reply *r)
{
	return kernel_call(k, FUSE_LOOKUP, dir, r, NAME(name));
}

int kernel_getattr(struct fake_kernel *k, uint64_t node, struct kernel_reply *r)
{
	struct fuse_getattr_in in = {0};

	return kernel_call(k, FUSE_GETATTR, node, r, ARG(in));
}

uint64_t kernel_open_file(struct fake_kernel *k, uint64_t node, uint32_t flags)
{
	static struct kernel_reply r;
	struct fuse_open_in in = {.flags = flags | 0100000}; /* the kernel's O_LARGEFILE */

	assert_int_equal(kernel_call(k, FUSE_OPEN, node, &r, ARG(in)), 0);
	return r.open.fh;
}

uint64_t kernel_create(struct fake_kernel *k, const char *name, uint32_t mode, uint64_t *ret_node)
{
	static struct kernel_reply r;
	struct fuse_create_in in = {.flags = O_RDWR | O_CREAT, .mode = mode | S_IFREG};

	assert_int_equal(kernel_call(k, FUSE_CREATE, 1, &r, ARG(in), NAME(name)), 0);
	*ret_node = r.create.entry.nodeid;
	return r.create.open.fh;
}

int kernel_write(struct fake_kernel *k, uint64_t node, uint64_t fh, uint64_t off, const void *buf,
		 uint32_t len)
{
	static struct kernel_reply r;
	struct fuse_write_in in = {.fh = fh,
				   .offset = off,
				   .size = len,
				   .write_flags = FUSE_WRITE_LOCKOWNER,
				   .lock_owner = 77};
	int err = kernel_call(k, FUSE_WRITE, node, &r, ARG(in), {buf, len});

	if (err == 0)
		assert_int_equal(r.write.size, len);
	return err;
}

int kernel_read(struct fake_kernel *k, uint64_t node, uint64_t fh, uint64_t off, uint32_t len,
		struct kernel_reply *r)
{
	struct fuse_read_in in = {.fh = fh,
				  .offset = off,
				  .size = len,
				  .read_flags = FUSE_READ_LOCKOWNER,
				  .lock_owner = 77};

	return kernel_call(k, FUSE_READ, node, r, ARG(in));
}

void kernel_release(struct fake_kernel *k, uint64_t node, uint64_t fh)
{
	static struct kernel_reply r;
	struct fuse_release_in in = {.fh = fh};

	assert_int_equal(kernel_call(k, FUSE_RELEASE, node, &r, ARG(in)), 0);
}

uint64_t kernel_opendir(struct fake_kernel *k, uint64_t node)
{
	static struct kernel_reply r;
	struct fuse_open_in in = {0};

	assert_int_equal(kernel_call(k, FUSE_OPENDIR, node, &r, ARG(in)), 0);
	return r.open.fh;
}
