/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/request_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/state_machine.h"
#include "common/rt/net.h"
#include "fuse/kernel/invalidate.h"
#include "fuse/kernel/kernel_mount.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/restart/restart_state.h"

/*
 * One request: read into a slot → a small one moves to a small buffer, so that the slot is free
 * again → a fiber hands it to libfuse, which calls the op_ handler, which replies in the same
 * fiber. Nothing is queued here: the kernel's limit (max_background) and the request slots bound
 * what is in flight.
 */
#define SMALL_MAX      8192
#define SMALL_POOL_MAX 256
#define READS_PER_TURN 32
/* A large request that has the last slot waits ASIDE_AFTER_MS for another slot to become free
 * before its bytes move to separate memory; during the next ASIDE_FOR_MS others do not wait. Such
 * requests use at most ASIDE_MAX times the memory of all slots. */
#define ASIDE_AFTER_MS 50u
#define ASIDE_FOR_MS   1000u
#define ASIDE_MAX      16u

/* linux/fuse.h of Linux 6.9 */
#define UNIQUE_RESENT    (1ull << 63)
#define OPCODE_STATX     52u
#define NOTIFY_RESEND    7
#define FLAG_EXT         (1u << 30)
#define FLAG2_HAS_RESEND (1u << 7)

/* On a handover: how long requests may take to end, and then written data to become durable. The
 * kernel resends requests that remain to the next daemon. */
#define HAND_OVER_REQUESTS_MS 2000u
#define HAND_OVER_DRAIN_MS    20000u

#define TO(phase) (1u << MOUNT_##phase)
STATE_MACHINE(mount_moves, "mount", N_MOUNT_PHASES,
	      .states = {"starts", "serves", "hands over", "detached"},
	      .allowed = {
		      [MOUNT_STARTS] = TO(SERVES),
		      [MOUNT_SERVES] = TO(HANDS_OVER) | TO(DETACHED),
		      [MOUNT_HANDS_OVER] = TO(SERVES) | TO(DETACHED),
	      })

static void move(struct leatfs *fs, enum mount_phase to)
{
	fs->phase = state_machine_move(&mount_moves, fs->phase, to);
}

#define REQUEST_MAGIC 0x4c524551u
struct request {
	uint32_t magic;
	struct mount_request pub;
	struct request *next_free;
	struct list link; /* of fs->running */
	uint64_t unique;
	struct interruptible interruptible;
	struct ll_request changes;
	bool alone;    /* if its program is killed, it may be answered before it ends, */
	bool answered; /* and has been */
	size_t len;
	uint64_t start_us;
	uint8_t *aside; /* the bytes of a large request that has no slot; from malloc */
	uint8_t small[SMALL_MAX];
};

/* The free requests of the thread, and the one that the running fiber is starting. */
static __thread struct request *free_requests;
static __thread uint32_t n_free_requests;
static __thread struct request *starting;

struct mount_request *session_request(void)
{
	return starting ? &starting->pub : NULL;
}

void session_request_bytes_end(struct mount_request *mr)
{
	if (mr == NULL)
		return;
	slot_unref(mr->slot);
	mr->slot = NULL;
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
		r->magic = REQUEST_MAGIC;
	}
	r->pub = (struct mount_request){.fs = fs};
	r->aside = NULL;
	return r;
}

static void request_put(struct request *r)
{
	slot_unref(r->pub.slot);
	ASSERT(r->aside == NULL || r->pub.fs->aside >= r->len);
	if (r->aside)
		r->pub.fs->aside -= r->len;
	free(r->aside);
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
	char number[16];

	/* A request for a lock is meant to wait. */
	if (h->opcode == FUSE_SETLKW || fs->slow_ms == 0 || us < (uint64_t)fs->slow_ms * 1000)
		return;
	snprintf(number, sizeof(number), "opcode %u", h->opcode);
	log_warn("slow request: %s inode=%llu pid=%u: %llu ms", name ? name : number,
		 (unsigned long long)h->nodeid, h->pid, (unsigned long long)(us / 1000));
}

/* ---- INIT: sent once, replayed to later daemons ---- */

/* Extracts what the answers of all daemons must have in common. The other fields matter only to the
 * kernel. */
static void compared(struct fuse_init_out *out, const uint8_t *answer, size_t len)
{
	*out = (struct fuse_init_out){0};
	len -= sizeof(struct fuse_out_header);
	memcpy(out, answer + sizeof(struct fuse_out_header),
	       len < sizeof(*out) ? len : sizeof(*out));
	out->max_readahead = 0;
	out->max_background = out->congestion_threshold = 0;
}

static bool same_answer(const struct restart *k, const uint8_t *answer, size_t len)
{
	struct fuse_init_out before, now;

	if (k->answer_len < sizeof(struct fuse_out_header) || len != k->answer_len)
		return false;
	compared(&before, k->answer, k->answer_len);
	compared(&now, answer, len);
	return memcmp(&before, &now, sizeof(now)) == 0;
}

/* Has libfuse answer INIT into a pipe, which replaces the device meanwhile. Returns the length, or
 * -1. Does not yield; no other thread writes to the device before INIT is answered. */
static ssize_t init_ask(struct leatfs *fs, const uint8_t *request, size_t len, uint8_t *answer)
{
	struct fuse_buf buf = {.mem = (void *)request, .size = len};
	int fd = fuse_session_fd(fs->session), p[2], device;
	ssize_t n = -1;

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	device = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (device >= 0 && dup3(p[1], fd, O_CLOEXEC) >= 0) {
		fuse_session_process_buf(fs->session, &buf);
		if (dup3(device, fd, O_CLOEXEC) >= 0)
			n = read(p[0], answer, RESTART_INIT_MAX);
	}
	if (device >= 0)
		close(device);
	close(p[0]);
	close(p[1]);
	return n;
}

/* Answers the kernel's INIT, and records request and answer for later daemons. */
static void serve_init(struct leatfs *fs, const uint8_t *data, size_t len)
{
	const size_t flags_at = sizeof(struct fuse_in_header) + 3 * sizeof(uint32_t);
	uint32_t flags = 0, flags2 = 0;
	struct restart *k = fs->restart;
	ssize_t n;

	if (len <= sizeof(k->init)) {
		memcpy(k->init, data, len);
		k->init_len = (uint32_t)len;
	}
	if (len >= flags_at + 8) {
		memcpy(&flags, data + flags_at, sizeof(flags));
		memcpy(&flags2, data + flags_at + 4, sizeof(flags2));
	}
	k->resend = (flags & FLAG_EXT) != 0 && (flags2 & FLAG2_HAS_RESEND) != 0;
	n = init_ask(fs, data, len, k->answer);
	k->answer_len = n > 0 ? (uint32_t)n : 0;
	RESTART_BARRIER();
	k->ino32 = fs->ino32;
	k->init_done = k->init_len > 0 && n > 0;
	if (n <= 0 || write(fuse_session_fd(fs->session), k->answer, (size_t)n) != n) {
		log_error("cannot answer the kernel at %s: %s", fs->mountpoint, strerror(errno));
		k->init_done = 0;
	}
}

/* Sends the recorded answer, which a previous daemon did not send before it ended. libfuse has
 * processed INIT already. */
static void answer_init_again(struct leatfs *fs, uint64_t unique)
{
	uint8_t answer[RESTART_INIT_MAX];
	const size_t n = fs->restart->answer_len;

	memcpy(answer, fs->restart->answer, n);
	memcpy(answer + offsetof(struct fuse_out_header, unique), &unique, sizeof(unique));
	if (write(fuse_session_fd(fs->session), answer, n) != (ssize_t)n)
		log_error("cannot answer the kernel at %s: %s", fs->mountpoint, strerror(errno));
}

/* Returns the max_background in the first daemon's answer, which the kernel uses whatever is
 * configured now. */
static uint32_t kernel_places(const struct restart *k)
{
	struct fuse_init_out out = {0};
	size_t len = k->answer_len - sizeof(struct fuse_out_header);

	memcpy(&out, k->answer + sizeof(struct fuse_out_header),
	       len < sizeof(out) ? len : sizeof(out));
	return out.max_background;
}

/* Gives libfuse the INIT that a previous daemon answered. Sends the kernel nothing. */
static int init_replay(struct leatfs *fs)
{
	uint8_t answer[RESTART_INIT_MAX];
	ssize_t n = init_ask(fs, fs->restart->init, fs->restart->init_len, answer);

	if (n > 0 && same_answer(fs->restart, answer, (size_t)n) &&
	    fs->restart->ino32 == fs->ino32) {
		fs->max_background = kernel_places(fs->restart);
		return 0;
	}
	log_error("cannot go on with the mount at %s: the previous daemon negotiated something "
		  "else with the kernel (another release, or other options). Unmount and mount "
		  "again to change it",
		  fs->mountpoint);
	fs->init_differs = true;
	return -LE_INVAL;
}

int session_ask_again(struct leatfs *fs)
{
	struct fuse_out_header h = {.len = sizeof(h), .error = NOTIFY_RESEND};

	if (!fs->restart->resend || write(fuse_session_fd(fs->session), &h, sizeof(h)) >= 0)
		return 0;
	log_error(
		"%s: the kernel does not send the requests again that the previous daemon has not "
		"answered: %s. Their programs wait until they are killed",
		fs->mountpoint, strerror(errno));
	return status_from_errno(errno);
}

/* ---- requests of killed programs ---- */

/* Returns true if the operation may continue after the kernel has its reply: the handler uses no
 * open file, which the kernel could close meanwhile, and its result needs no undoing. */
static bool may_go_on_alone(const struct fuse_in_header *h, const uint8_t *data, size_t len)
{
	struct fuse_setattr_in set;

	switch (h->opcode) {
	case FUSE_SETATTR:
		if (len < sizeof(*h) + sizeof(set))
			return false;
		memcpy(&set, data + sizeof(*h), sizeof(set));
		return (set.valid & FATTR_FH) == 0;
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case OPCODE_STATX:
	case FUSE_READLINK:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_OPEN:
	case FUSE_CREATE:
	case FUSE_TMPFILE:
	case FUSE_STATFS:
	case FUSE_ACCESS:
	case FUSE_GETXATTR:
	case FUSE_SETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return true;
	default:
		return false;
	}
}

static void answer_killed(struct interruptible *k)
{
	struct request *r = container_of(k, struct request, interruptible);
	struct fuse_out_header h = {.len = sizeof(h), .error = -EINTR, .unique = r->unique};

	r->answered = true;
	/* ENOENT: the kernel has its reply already. */
	if (write(fuse_session_fd(r->pub.fs->session), &h, sizeof(h)) < 0 && errno != ENOENT)
		log_warn("%s: cannot send the kernel the reply for a killed program: %s",
			 r->pub.fs->mountpoint, strerror(errno));
}

static void cancel_interrupted(struct interruptible *k)
{
	ll_request_cancel(&container_of(k, struct request, interruptible)->changes);
}

static const struct interrupt_ops interrupt_ops = {cancel_interrupted, answer_killed};

/* Handles INTERRUPT of a request that may continue after its reply. libfuse handles it for the
 * others. */
static void serve_interrupt(struct leatfs *fs, const uint8_t *data, size_t len)
{
	struct fuse_interrupt_in in;

	if (len < sizeof(struct fuse_in_header) + sizeof(in))
		return;
	memcpy(&in, data + sizeof(struct fuse_in_header), sizeof(in));
	list_for_each (n, &fs->running) {
		struct request *r = list_entry(n, struct request, link);

		if (r->unique != in.unique)
			continue;
		if (r->alone && !r->answered)
			interrupt_signal(&fs->interrupts, &r->interruptible);
		return;
	}
}

static void request_begin(struct request *r, const struct fuse_in_header *h)
{
	r->unique = h->unique;
	r->alone = may_go_on_alone(h, r->pub.data, r->len);
	r->answered = false;
	interruptible_init(&r->interruptible, (pid_t)h->pid, &interrupt_ops);
	ll_request_begin(&r->changes, r->pub.fs->client, h->unique & ~UNIQUE_RESENT);
	list_push(&r->pub.fs->running, &r->link);
}

static void request_end(struct request *r, const struct fuse_in_header *h)
{
	ll_request_end(&r->changes);
	list_remove(&r->link);
	interruptible_fini(&r->interruptible);
	if (!r->answered)
		return;
	/* After its early reply the kernel may have requested attributes that the operation then
	 * changed, and for a later truncation it has dropped no pages. */
	kernel_size_forget_attr(r->pub.fs, ino_of(r->pub.fs, h->nodeid));
	if (h->opcode == FUSE_SETATTR || h->opcode == FUSE_OPEN)
		invalidate_inode(r->pub.fs, ino_of(r->pub.fs, h->nodeid), 0, 0, NULL);
}

static void serve_request(void *arg)
{
	struct request *r = CAST_OBJ(arg, struct request, REQUEST_MAGIC);
	struct leatfs *fs = r->pub.fs;
	struct fuse_buf buf = {.mem = (void *)r->pub.data, .size = r->len};
	struct fuse_in_header header = {0};
	uint64_t us;

	memcpy(&header, r->pub.data, r->len < sizeof(header) ? r->len : sizeof(header));
	request_begin(r, &header);
	if (header.opcode == FUSE_INTERRUPT)
		serve_interrupt(fs, r->pub.data, r->len);
	if ((header.unique & UNIQUE_RESENT) != 0)
		fs->on_resent(fs, header.unique & ~UNIQUE_RESENT);
	if (header.opcode == FUSE_INIT && fs->restart->init_done) {
		answer_init_again(fs, header.unique);
	} else if (header.opcode == FUSE_INIT) {
		serve_init(fs, r->pub.data, r->len);
	} else {
		/* The handler reads it before it first yields (session_request). */
		starting = r;
		fuse_session_process_buf(fs->session, &buf);
		starting = NULL;
	}
	request_end(r, &header);
	us = env_now_us(fs->env) - r->start_us;
	metric_hist_add(&fs->metrics.request_us, us);
	log_if_slow(fs, &header, us);
	request_put(r);
	ASSERT(fs->n_running > fs->n_waiting);
	fs->n_running--;
	metric_set(&fs->metrics.running, fs->n_running);
}

/* Moves a large request out of the last free slot, if no other slot becomes free in time. Otherwise
 * large requests that wait for a silent server could hold all slots, and the daemon could read no
 * request, not even those that do not need that server. Returns true if the request has moved.
 * Yields. */
static bool move_aside(struct request *r, struct slot *slot)
{
	struct leatfs *fs = r->pub.fs;
	uint64_t max = (uint64_t)ASIDE_MAX * slot_pool_total(fs->requests) * slot->size;
	struct slot *other;
	int rc;

	if (slot_pool_free(fs->requests) > 0 || fs->aside + r->len > max)
		return false;
	rc = slot_get(fs->requests,
		      fs->aside_until_us > loop_now_us() ? loop_now_us()
							 : loop_deadline_ms(ASIDE_AFTER_MS),
		      &other);
	if (rc == 0)
		slot_unref(other);
	if (rc != -LE_TIMEDOUT)
		return false;
	r->aside = malloc(r->len);
	if (!r->aside)
		return false;
	fs->aside += r->len;
	fs->aside_until_us = loop_deadline_ms(ASIDE_FOR_MS);
	memcpy(r->aside, slot->data, r->len);
	slot_unref(slot);
	return true;
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
	} else if (move_aside(r, slot)) {
		r->pub.data = r->aside;
	} else {
		r->pub.data = slot->data;
		r->pub.slot = slot;
	}
	fs->n_running++;
	metric_add(&fs->metrics.requests, 1);
	status = fiber_spawn("request", serve_request, r);
	if (status < 0) {
		/* Too many fibers: the reader serves the request itself, and reads no other
		 * meanwhile. */
		serve_request(r);
	}
	return 0;
}

/* Reads and starts requests. Returns 0: the device has none now; 1: it may have more; < 0: serving
 * must end. Yields. */
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

void session_hand_over(struct leatfs *fs)
{
	/* A second interrupt would make a wait in hand_over fail. */
	if (fs->phase != MOUNT_SERVES)
		return;
	move(fs, MOUNT_HANDS_OVER);
	if (fs->reader)
		fiber_interrupt(fs->reader);
}

/* Waits for the requests in flight, and until written data are durable; reads no request meanwhile.
 * Returns true if the next daemon can take over: it gets again the requests that remain, since they
 * have no reply. */
static bool hand_over(struct leatfs *fs)
{
	uint64_t until = loop_deadline_ms(HAND_OVER_REQUESTS_MS);
	int status;

	(void)fiber_interrupt_clear();
	while (fs->n_running > fs->n_waiting && loop_now_us() < until)
		fiber_sleep_us(1000);
	status = ll_drain(fs->client, loop_deadline_ms(HAND_OVER_DRAIN_MS));
	if (status == 0 && fs->n_running > 0 && !fs->restart->resend)
		status = -LE_BUSY;
	if (status == 0)
		return true;
	log_error("%s: this daemon is not replaced, and keeps serving: %s", fs->mountpoint,
		  status == -LE_BUSY ? "requests are in flight, and the kernel does not send them "
				       "again (Linux 6.9 does)"
				     : "written data are not durable yet; try again later");
	fs->restart->n_refused++;
	move(fs, MOUNT_SERVES);
	return false;
}

/* Starts requests, or waits for some. Returns < 0 if serving must end. */
static int serve_some(struct leatfs *fs, int fd)
{
	int status = read_requests(fs, fd);

	if (status != 0)
		return status;
	status = net_poll(fd, POLLIN, NO_DEADLINE);
	if (status > 0 && (status & (POLLERR | POLLHUP)) && !(status & POLLIN))
		return -LE_NODEV;
	return status;
}

bool session_serve(struct leatfs *fs)
{
	int fd = fuse_session_fd(fs->session);

	fs->reader = fiber_self();
	while (!loop_stopping(fs->loop) && !fuse_session_exited(fs->session)) {
		int status = fs->phase == MOUNT_HANDS_OVER ? -LE_INTR : serve_some(fs, fd);

		if (fs->phase == MOUNT_HANDS_OVER && (status >= 0 || status == -LE_INTR)) {
			if (hand_over(fs))
				return true;
			continue;
		}
		if (status == -LE_NODEV || status == -LE_INTR)
			break;
		if (status < 0) {
			log_error("%s: cannot read requests from /dev/fuse: %s", fs->mountpoint,
				  status_text(status));
			break;
		}
	}
	fs->reader = NULL;
	while (fs->n_running > 0)
		fiber_sleep_us(1000);
	return false;
}

/* Records the device number of the mount, and raises its read-ahead: the kernel's default of 128
 * KiB is less than a stripe needs. */
static void look_at_mount(const struct leatfs *fs)
{
	struct kernel_mount_info info;
	char path[128];
	FILE *f;

	if (!kernel_mount_find(fs->mountpoint, &info))
		return;
	fs->restart->dev = makedev(info.dev_major, info.dev_minor);
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", info.dev_major,
		 info.dev_minor);
	f = fopen(path, "we");
	if (!f)
		return;
	fprintf(f, "%u\n", fs->max_write / 1024 * 2);
	fclose(f);
}

static int session_new(struct leatfs *fs)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	if (fuse_opt_add_arg(&args, "mount.leat") < 0)
		return -LE_NOMEM;
	fs->session = fuse_session_new(&args, fs->ops, sizeof(*fs->ops), fs);
	fuse_opt_free_args(&args);
	if (fs->session)
		return 0;
	log_error("cannot mount at %s: libfuse cannot create a session", fs->mountpoint);
	return -LE_INVAL;
}

int session_attach(struct leatfs *fs, int fd)
{
	char device[32];

	if (fs->session == NULL)
		TRY(session_new(fs));
	snprintf(device, sizeof(device), "/dev/fd/%d", fd);
	if (fuse_session_mount(fs->session, device) == 0)
		return 0;
	log_error("cannot mount at %s: libfuse does not accept the device", fs->mountpoint);
	return -LE_IO;
}

int session_mount(struct leatfs *fs, const struct mount_options *o, int device_fd)
{
	int fd = device_fd, err, status;

	TRY(session_new(fs));
	err = kernel_mount(o, &fd);
	if (err != 0) {
		log_error("cannot mount at %s: %s", fs->mountpoint, strerror(err));
		return status_from_errno(err);
	}
	fs->restart->mounted = 1;
	status = session_attach(fs, fd);
	if (status < 0) {
		kernel_unmount(fs->mountpoint, fd);
		close(fd);
		return status;
	}
	move(fs, MOUNT_SERVES);
	look_at_mount(fs);
	return 0;
}

int session_take_over(struct leatfs *fs, int device_fd)
{
	TRY(session_attach(fs, device_fd));
	TRY(init_replay(fs));
	move(fs, MOUNT_SERVES);
	return 0;
}

void session_detach(struct leatfs *fs)
{
	if (!mount_is_attached(fs))
		return;
	kernel_unmount(fs->mountpoint, fuse_session_fd(fs->session));
	move(fs, MOUNT_DETACHED);
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
