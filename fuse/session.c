/*
 * The connection to the kernel: mounting, and the fiber that reads /dev/fuse.
 *
 * Owner: the mount's loop. One request: read into a slot → small ones move to a small buffer, so
 * that the slot serves again → a fiber hands it to libfuse, which calls the op_ handler, which
 * answers in the same fiber. Nothing is queued here: the kernel's own limit (max_background) and
 * the request slots bound what is under way.
 */
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rt/net.h"
#include "fuse/kernel_mount.h"
#include "fuse/options.h"

#define SMALL_MAX      8192
#define SMALL_POOL_MAX 256
#define READS_PER_TURN 32

struct request {
	struct mount_request pub;
	struct request *next_free;
	size_t len;
	uint64_t start_us;
	uint8_t small[SMALL_MAX];
};

struct ino mount_root = {1};

/* One per thread that serves a mount: the free requests and the one that the running fiber has. */
static __thread struct request *free_requests;
static __thread uint32_t n_free_requests;
static __thread struct request *starting;

struct mount_request *session_request(void)
{
	return starting ? &starting->pub : NULL;
}

static struct request *request_get(struct leatfs *fs)
{
	struct request *r = free_requests;

	if (r) {
		free_requests = r->next_free;
		n_free_requests--;
	} else {
		r = malloc(sizeof(*r));
		if (!r)
			return NULL;
	}
	r->pub = (struct mount_request){.fs = fs};
	return r;
}

static void request_put(struct request *r)
{
	slot_unref(r->pub.slot);
	if (n_free_requests >= SMALL_POOL_MAX) {
		free(r);
		return;
	}
	r->next_free = free_requests;
	free_requests = r;
	n_free_requests++;
}

/* The opcode's name, as linux/fuse.h has it; NULL for the rare ones. */
static const char *opcode_name(uint32_t opcode)
{
	static const char *const names[] = {
		[FUSE_LOOKUP] = "lookup",
		[FUSE_GETATTR] = "getattr",
		[FUSE_SETATTR] = "setattr",
		[FUSE_READLINK] = "readlink",
		[FUSE_SYMLINK] = "symlink",
		[FUSE_MKNOD] = "mknod",
		[FUSE_MKDIR] = "mkdir",
		[FUSE_UNLINK] = "unlink",
		[FUSE_RMDIR] = "rmdir",
		[FUSE_RENAME] = "rename",
		[FUSE_LINK] = "link",
		[FUSE_OPEN] = "open",
		[FUSE_READ] = "read",
		[FUSE_WRITE] = "write",
		[FUSE_STATFS] = "statfs",
		[FUSE_RELEASE] = "release",
		[FUSE_FSYNC] = "fsync",
		[FUSE_SETXATTR] = "setxattr",
		[FUSE_GETXATTR] = "getxattr",
		[FUSE_LISTXATTR] = "listxattr",
		[FUSE_REMOVEXATTR] = "removexattr",
		[FUSE_FLUSH] = "flush",
		[FUSE_CREATE] = "create",
		[FUSE_READDIR] = "readdir",
		[FUSE_READDIRPLUS] = "readdirplus",
		[FUSE_FALLOCATE] = "fallocate",
		[FUSE_LSEEK] = "lseek",
		[FUSE_RENAME2] = "rename",
		[FUSE_GETLK] = "getlk",
		[FUSE_SETLK] = "setlk",
		[FUSE_COPY_FILE_RANGE] = "copy_file_range",
		[FUSE_TMPFILE] = "tmpfile",
	};

	return opcode < ARRAY_SIZE(names) ? names[opcode] : NULL;
}

static void log_if_slow(const struct leatfs *fs, const struct fuse_in_header *h, uint64_t us)
{
	const char *name = opcode_name(h->opcode);

	/* Waiting for a lock is what it is for. */
	if (h->opcode == FUSE_SETLKW || fs->slow_ms == 0 || us < (uint64_t)fs->slow_ms * 1000)
		return;
	log_warn("slow request: %s inode=%llu pid=%u: %llu ms", name ? name : "other",
		 (unsigned long long)h->nodeid, h->pid, (unsigned long long)(us / 1000));
}

static void serve_request(void *arg)
{
	struct request *r = arg;
	struct leatfs *fs = r->pub.fs;
	struct fuse_buf buf = {.mem = (void *)r->pub.data, .size = r->len};
	struct fuse_in_header header = {0};
	uint64_t us;

	memcpy(&header, r->pub.data, r->len < sizeof(header) ? r->len : sizeof(header));

	/* The handler picks it up before it first yields (session_request). */
	starting = r;
	fuse_session_process_buf(fs->session, &buf);
	starting = NULL;
	us = env_now_us(fs->env) - r->start_us;
	metric_hist_add(&fs->metrics.request_us, us);
	log_if_slow(fs, &header, us);
	request_put(r);
	fs->n_running--;
	metric_set(&fs->metrics.running, fs->n_running);
}

/* Starts the fiber for a request that was read into slot; takes over the slot's reference. */
static int start_request(struct leatfs *fs, struct slot *slot, size_t len)
{
	struct request *r = request_get(fs);
	int status;

	if (!r) {
		slot_unref(slot);
		return -LE_NOMEM;
	}
	r->len = r->pub.len = len;
	r->start_us = loop_now_us();
	if (len <= SMALL_MAX) {
		memcpy(r->small, slot->data, len);
		r->pub.data = r->small;
		slot_unref(slot);
	} else {
		r->pub.data = slot->data;
		r->pub.slot = slot;
	}
	fs->n_running++;
	metric_add(&fs->metrics.requests, 1);
	status = fiber_spawn("request", serve_request, r);
	if (status < 0) {
		/* Too many fibers: the reader does it itself, which also slows the kernel down. */
		serve_request(r);
	}
	return 0;
}

/* Reads and starts requests until the device has none. 0: none now; < 0: the end. */
static int read_requests(struct leatfs *fs, int fd)
{
	for (int i = 0; i < READS_PER_TURN; i++) {
		struct slot *slot;
		ssize_t n;

		TRY(slot_get(fs->requests, NO_DEADLINE, &slot));
		do {
			n = read(fd, slot->data, slot->size);
		} while (n < 0 && (errno == EINTR || errno == ENOENT));
		if (n <= 0) {
			slot_unref(slot);
			if (n < 0 && errno == EAGAIN)
				return 0;
			return n < 0 && errno != ENODEV ? status_from_errno(errno) : -LE_NODEV;
		}
		TRY(start_request(fs, slot, (size_t)n));
	}
	fiber_yield();
	return 1;
}

void session_serve(struct leatfs *fs)
{
	int fd = fuse_session_fd(fs->session);
	int status;

	while (!loop_stopping(fs->loop) && !fuse_session_exited(fs->session)) {
		status = read_requests(fs, fd);
		if (status == 0) {
			status = net_poll(fd, POLLIN, NO_DEADLINE);
			if (status > 0 && (status & (POLLERR | POLLHUP)) && !(status & POLLIN))
				status = -LE_NODEV;
		}
		if (status == -LE_NODEV || status == -LE_INTR)
			break;
		if (status < 0) {
			log_error("reading /dev/fuse: %s", status_text(status));
			break;
		}
	}
	while (fs->n_running > 0)
		fiber_sleep_us(1000);
}

/* The kernel reads ahead 128 KiB at most unless told otherwise; a stripe wants more. */
static void raise_readahead(const struct leatfs *fs)
{
	struct kernel_mount_info info;
	char path[128];
	FILE *f;

	if (!kernel_mount_find(fs->mountpoint, &info))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", info.dev_major,
		 info.dev_minor);
	f = fopen(path, "we");
	if (!f)
		return;
	fprintf(f, "%u\n", fs->max_write / 1024 * 2);
	fclose(f);
}

int session_mount(struct leatfs *fs, const struct mount_options *o)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	char device[32];
	int fd = -1, err;

	TRY(mount_options_fuse_args(&args));
	fs->session = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->session) {
		log_error("cannot mount at %s: libfuse refuses", fs->mountpoint);
		return -LE_INVAL;
	}
	err = kernel_mount(o, &fd);
	if (err != 0) {
		log_error("cannot mount at %s: %s", fs->mountpoint, strerror(err));
		return status_from_errno(err);
	}
	fs->mounted = true;
	snprintf(device, sizeof(device), "/dev/fd/%d", fd);
	/* From here on libfuse owns the descriptor. */
	if (fuse_session_mount(fs->session, device) < 0) {
		log_error("cannot mount at %s: libfuse does not take the device", fs->mountpoint);
		kernel_unmount(fs->mountpoint, fd);
		close(fd);
		fs->mounted = false;
		return -LE_IO;
	}
	raise_readahead(fs);
	return 0;
}

void session_detach(struct leatfs *fs)
{
	if (fs->mounted)
		kernel_unmount(fs->mountpoint, fuse_session_fd(fs->session));
	fs->mounted = false;
}

void session_end(struct leatfs *fs)
{
	session_detach(fs);
	if (fs->session) {
		fuse_session_unmount(fs->session);
		fuse_session_destroy(fs->session);
	}
	fs->session = NULL;
}
