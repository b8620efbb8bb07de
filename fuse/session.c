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
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rt/net.h"
#include "fuse/kept.h"
#include "fuse/kernel_mount.h"
#include "fuse/options.h"

#define SMALL_MAX      8192
#define SMALL_POOL_MAX 256
#define READS_PER_TURN 32
/* Large requests wait so long for another one to end before their bytes move aside, and for all of
 * these there may be so many times the memory of their slots. */
#define ASIDE_AFTER_MS 50u
#define ASIDE_FOR_MS   1000u
#define ASIDE_MAX      16u

/* linux/fuse.h of Linux 6.9 */
#define UNIQUE_RESENT    (1ull << 63)
#define OPCODE_STATX     52u
#define NOTIFY_RESEND    7
#define FLAG_EXT         (1u << 30)
#define FLAG2_HAS_RESEND (1u << 7)

/* How long requests may take to end by themselves when another daemon is to go on, and all that
 * they have written to become durable. Those that are left come to the next daemon. */
#define HAND_OVER_REQUESTS_MS 2000u
#define HAND_OVER_DRAIN_MS    20000u

struct request {
	struct mount_request pub;
	struct request *next_free;
	struct list link; /* of fs->running */
	uint64_t unique;
	struct killable killable;
	struct ll_request changes;
	bool alone;    /* it may be answered before it is served, when its program is killed, */
	bool answered; /* and has been */
	size_t len;
	uint64_t start_us;
	uint8_t *aside; /* the bytes of a large one that has no slot; from malloc */
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
	}
	r->pub = (struct mount_request){.fs = fs};
	r->aside = NULL;
	return r;
}

static void request_put(struct request *r)
{
	slot_unref(r->pub.slot);
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

	/* Waiting for a lock is what it is for. */
	if (h->opcode == FUSE_SETLKW || fs->slow_ms == 0 || us < (uint64_t)fs->slow_ms * 1000)
		return;
	log_warn("slow request: %s inode=%llu pid=%u: %llu ms", name ? name : "other",
		 (unsigned long long)h->nodeid, h->pid, (unsigned long long)(us / 1000));
}

/* ---- INIT: sent once, replayed to later daemons ---- */

/* What only the kernel looks at may change from daemon to daemon. */
static void compared(struct fuse_init_out *out, const uint8_t *answer, size_t len)
{
	*out = (struct fuse_init_out){0};
	len -= sizeof(struct fuse_out_header);
	memcpy(out, answer + sizeof(struct fuse_out_header),
	       len < sizeof(*out) ? len : sizeof(*out));
	out->max_readahead = 0;
	out->max_background = out->congestion_threshold = 0;
}

static bool same_answer(const struct kept *k, const uint8_t *answer, size_t len)
{
	struct fuse_init_out before, now;

	if (k->answer_len < sizeof(struct fuse_out_header) || len != k->answer_len)
		return false;
	compared(&before, k->answer, k->answer_len);
	compared(&now, answer, len);
	return memcmp(&before, &now, sizeof(now)) == 0;
}

/* libfuse answers a request of INIT into a pipe, which takes the device's place meanwhile. Does not
 * yield; nobody else writes to the device before it is answered. */
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
			n = read(p[0], answer, KEPT_INIT_MAX);
	}
	if (device >= 0)
		close(device);
	close(p[0]);
	close(p[1]);
	return n;
}

/* The kernel's INIT: what was said is noted for the daemons that come after us. */
static void serve_init(struct leatfs *fs, const uint8_t *data, size_t len)
{
	const size_t flags_at = sizeof(struct fuse_in_header) + 3 * sizeof(uint32_t);
	uint32_t flags = 0, flags2 = 0;
	struct kept *k = fs->kept;
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
	KEPT_BARRIER();
	k->init_done = k->init_len > 0 && n > 0;
	if (n <= 0 || write(fuse_session_fd(fs->session), k->answer, (size_t)n) != n) {
		log_error("cannot answer the kernel at %s: %s", fs->mountpoint, strerror(errno));
		k->init_done = 0;
	}
}

/* A former daemon was ended before it had answered. libfuse has been told already. */
static void answer_init_again(struct leatfs *fs, uint64_t unique)
{
	uint8_t answer[KEPT_INIT_MAX];
	const size_t n = fs->kept->answer_len;

	memcpy(answer, fs->kept->answer, n);
	memcpy(answer + offsetof(struct fuse_out_header, unique), &unique, sizeof(unique));
	if (write(fuse_session_fd(fs->session), answer, n) != (ssize_t)n)
		log_error("cannot answer the kernel at %s: %s", fs->mountpoint, strerror(errno));
}

/* How many places it has is what the first daemon has told it, whatever is configured now. */
static uint32_t kernel_places(const struct kept *k)
{
	struct fuse_init_out out = {0};
	size_t len = k->answer_len - sizeof(struct fuse_out_header);

	memcpy(&out, k->answer + sizeof(struct fuse_out_header),
	       len < sizeof(out) ? len : sizeof(out));
	return out.max_background;
}

/* libfuse gets the request again that was answered by a former daemon; the kernel hears nothing. */
static int init_replay(struct leatfs *fs)
{
	uint8_t answer[KEPT_INIT_MAX];
	ssize_t n = init_ask(fs, fs->kept->init, fs->kept->init_len, answer);

	if (n > 0 && same_answer(fs->kept, answer, (size_t)n)) {
		fs->max_background = kernel_places(fs->kept);
		return 0;
	}
	log_error("cannot go on with the mount at %s: the kernel was promised something else by "
		  "the former daemon (another release, or other options)",
		  fs->mountpoint);
	fs->init_differs = true;
	return -LE_INVAL;
}

/* Requests that the former daemon had read are given to us. */
int session_ask_again(struct leatfs *fs)
{
	struct fuse_out_header h = {.len = sizeof(h), .error = NOTIFY_RESEND};

	if (!fs->kept->resend || write(fuse_session_fd(fs->session), &h, sizeof(h)) >= 0)
		return 0;
	log_error("requests under way are lost: %s", strerror(errno));
	return status_from_errno(errno);
}

/* ---- requests of who has been killed ---- */

/* Whose handler does not use an open file, which could be closed behind its back, and whose answer
 * nobody has to take back. */
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

static void answer_killed(struct killable *k)
{
	struct request *r = container_of(k, struct request, killable);
	struct fuse_out_header h = {.len = sizeof(h), .error = -EINTR, .unique = r->unique};

	r->answered = true;
	/* ENOENT: the kernel has its answer. */
	if (write(fuse_session_fd(r->pub.fs->session), &h, sizeof(h)) < 0 && errno != ENOENT)
		log_warn("cannot answer the kernel: %s", strerror(errno));
}

static void withdraw_killed(struct killable *k)
{
	ll_request_withdraw(&container_of(k, struct request, killable)->changes);
}

static const struct killed_ops killed_ops = {withdraw_killed, answer_killed};

/* libfuse hears of it too, for the handlers that are interrupted themselves. */
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
			killed_signal(&fs->killed, &r->killable);
		return;
	}
}

static void request_begin(struct request *r, const struct fuse_in_header *h)
{
	r->unique = h->unique;
	r->alone = may_go_on_alone(h, r->pub.data, r->len);
	r->answered = false;
	killable_init(&r->killable, (pid_t)h->pid, &killed_ops);
	ll_request_begin(&r->changes, r->pub.fs->client, h->unique & ~UNIQUE_RESENT);
	list_push(&r->pub.fs->running, &r->link);
}

static void request_end(struct request *r, const struct fuse_in_header *h)
{
	ll_request_end(&r->changes);
	list_remove(&r->link);
	killable_fini(&r->killable);
	if (!r->answered)
		return;
	/* The kernel may have asked since, and believe what was so before. Of a cut that was made
	 * after its answer the kernel knows nothing: it has dropped no pages. */
	known_size_forget_attr(r->pub.fs, ino_of(h->nodeid));
	if (h->opcode == FUSE_SETATTR || h->opcode == FUSE_OPEN)
		invalidate_inode(r->pub.fs, ino_of(h->nodeid), 0, 0);
}

static void serve_request(void *arg)
{
	struct request *r = arg;
	struct leatfs *fs = r->pub.fs;
	struct fuse_buf buf = {.mem = (void *)r->pub.data, .size = r->len};
	struct fuse_in_header header = {0};
	uint64_t us;

	memcpy(&header, r->pub.data, r->len < sizeof(header) ? r->len : sizeof(header));
	request_begin(r, &header);
	if (header.opcode == FUSE_INTERRUPT)
		serve_interrupt(fs, r->pub.data, r->len);
	if ((header.unique & UNIQUE_RESENT) != 0)
		open_files_resent(fs, header.unique & ~UNIQUE_RESENT);
	if (header.opcode == FUSE_INIT && fs->kept->init_done) {
		answer_init_again(fs, header.unique);
	} else if (header.opcode == FUSE_INIT) {
		serve_init(fs, r->pub.data, r->len);
	} else {
		/* The handler picks it up before it first yields (session_request). */
		starting = r;
		fuse_session_process_buf(fs->session, &buf);
		starting = NULL;
	}
	request_end(r, &header);
	us = env_now_us(fs->env) - r->start_us;
	metric_hist_add(&fs->metrics.request_us, us);
	log_if_slow(fs, &header, us);
	request_put(r);
	fs->n_running--;
	metric_set(&fs->metrics.running, fs->n_running);
}

/* Large requests that wait for a server that does not answer keep their slots; with all of them
 * nothing would be read any more, also of those who need that server for nothing. So who has the
 * last one gives it up when no other is given back for a moment. True: he has. */
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

void session_hand_over(struct leatfs *fs)
{
	/* An interruption of what that waits for would be taken for a failure. */
	if (fs->handing_over)
		return;
	fs->handing_over = true;
	if (fs->reader)
		fiber_interrupt(fs->reader);
}

/* Nothing is read meanwhile. True: nothing is left here that the next daemon does not know. What is
 * still under way has not been answered, so it comes to that one. */
static bool hand_over(struct leatfs *fs)
{
	uint64_t until = loop_deadline_ms(HAND_OVER_REQUESTS_MS);
	int status;

	(void)fiber_interrupt_clear();
	while (fs->n_running > fs->n_waiting && loop_now_us() < until)
		fiber_sleep_us(1000);
	status = ll_drain(fs->client, loop_deadline_ms(HAND_OVER_DRAIN_MS));
	if (status == 0 && fs->n_running > 0 && !fs->kept->resend)
		status = -LE_BUSY;
	if (status == 0)
		return true;
	log_error("not replaced: %s", status == -LE_BUSY
					      ? "requests are under way, and the kernel does not "
						"give them again (Linux 6.9 does)"
					      : "what was written is not durable yet");
	fs->kept->n_refused++;
	fs->handing_over = false;
	return false;
}

/* Waits for requests and starts them: 0, or why there are none any more. */
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
		int status = fs->handing_over ? -LE_INTR : serve_some(fs, fd);

		if (fs->handing_over && (status >= 0 || status == -LE_INTR)) {
			if (hand_over(fs))
				return true;
			continue;
		}
		if (status == -LE_NODEV || status == -LE_INTR)
			break;
		if (status < 0) {
			log_error("reading /dev/fuse: %s", status_text(status));
			break;
		}
	}
	fs->reader = NULL;
	while (fs->n_running > 0)
		fiber_sleep_us(1000);
	return false;
}

/* Which one it is. The kernel reads ahead 128 KiB at most unless told otherwise; a stripe wants
 * more.
 */
static void look_at_mount(const struct leatfs *fs)
{
	struct kernel_mount_info info;
	char path[128];
	FILE *f;

	if (!kernel_mount_find(fs->mountpoint, &info))
		return;
	fs->kept->dev = makedev(info.dev_major, info.dev_minor);
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

	TRY(mount_options_fuse_args(&args));
	fs->session = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), fs);
	fuse_opt_free_args(&args);
	if (fs->session)
		return 0;
	log_error("cannot mount at %s: libfuse refuses", fs->mountpoint);
	return -LE_INVAL;
}

/* fd: of a mounted device. From here on libfuse owns it. */
static int session_attach(struct leatfs *fs, int fd)
{
	char device[32];

	snprintf(device, sizeof(device), "/dev/fd/%d", fd);
	if (fuse_session_mount(fs->session, device) == 0)
		return 0;
	log_error("cannot mount at %s: libfuse does not take the device", fs->mountpoint);
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
	fs->kept->mounted = 1;
	status = session_attach(fs, fd);
	if (status < 0) {
		kernel_unmount(fs->mountpoint, fd);
		close(fd);
		return status;
	}
	fs->mounted = true;
	look_at_mount(fs);
	return 0;
}

int session_take_over(struct leatfs *fs, int device_fd)
{
	TRY(session_new(fs));
	TRY(session_attach(fs, device_fd));
	TRY(init_replay(fs));
	fs->mounted = true;
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
