/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracks the kernel's i_size of files of which the kernel shows pages without a lease.
 *
 * What a reply to READ lacks becomes zeros in the kernel's pages, and i_size decides whether a
 * program can read these zeros. The kernel itself lowers i_size after a short reply, but only if
 * nothing has touched the inode's attributes since it sent the request: every GETATTR does, and
 * so does every page that is dropped (invalidate.c). So a short reply waits until i_size is
 * certainly not above the end of its data. This is certain while only replies from here have
 * raised i_size. After another client has truncated the file, the helper process makes the
 * kernel request the attributes, and that reply lowers i_size (kernel_size_helper.c). While
 * pages with such zeros exist, no reply gives the file a greater length.
 *
 * A reply that lowers i_size makes zeros too: the kernel then clears the rest of the page that the
 * new end is in, which may be as large as a READ (a large folio). If a READ holds that page, the
 * kernel clears it after the reply to the READ, so over newer data. This page counts as short until
 * it has been dropped.
 *
 * For the same reason the kernel discards attributes that it requested before pages were dropped
 * or before a write of its own ended, and a read then uses the old i_size. So before a reply to
 * GETATTR that the kernel might discard, the helper makes the kernel request the attributes,
 * unless the size equals what the helper observed last. Other replies need no helper: the kernel
 * discards a reply to LOOKUP or READDIRPLUS only if it has dropped the attributes of the file,
 * and it requests these before it uses them; it accepts all others.
 *
 * The helper also makes the kernel request owner and group after another client has changed
 * them: for an operation on an open descriptor the kernel decides by the owner it last received
 * which user may change mode and times.
 *
 * The i_size that the helper reports is reliable because it reads i_size after a change of
 * attr_version that follows the start of the query: the kernel discards every reply from before
 * that change that it has not applied yet.
 *
 * A daemon that takes over has no record of where data end in the pages that the previous daemon
 * filled, nor of i_size of their files. So replies give each file that was open then no bytes
 * until all its pages have been dropped; the helper's request for a short reply gets at most the
 * length that this reply reaches, since i_size is above that.
 *
 * Owner: the mount's loop.
 */
#include "fuse/kernel/kernel_size.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/proto/oss_proto.h"
#include "common/rt/loop.h"
#include "common/rt/net.h"
#include "fuse/kernel/invalidate.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/kernel_size_helper.h"

#define PROBE_US       30000000u
#define PROBE_FIRST_US 100000u
/* The kernel may apply a reply up to that long after the daemon has sent it, and a request may
 * arrive here up to that long after the kernel has applied an earlier reply. */
#define UNCERTAIN_US 10000u
/* Bounds kernel_size_wait: the reply to the helper can wait for a truncation, and the truncation
 * for a chunk lease that the caller of kernel_size_wait holds. */
#define WAIT_MS 20u
/* How long the helper tries to give the kernel another owner: less than the metadata server waits
 * (mds/lease/recall.c). And the pauses between its attempts. */
#define OWNER_MS           200u
#define OWNER_PAUSE_US     200u
#define OWNER_PAUSE_MAX_US 50000u
/* Helpers that run concurrently: other clients may truncate many open files of this machine. */
#define PROBES_MAX 32u

#define KERNEL_SIZE_MAGIC 0x4c4b5a45u
struct kernel_size {
	uint32_t magic;
	struct hmap_node node; /* of fs->pages.sizes, by ino */
	struct leatfs *fs;
	struct ino ino;
	uint32_t n_refs;
	uint64_t most;  /* upper bound of i_size */
	uint64_t noted; /* i_size, as the helper read it at noted_us or later */
	uint64_t noted_us;
	/* writes and drops of pages in flight: the kernel discards replies when they end */
	uint32_t n_busy;
	uint64_t busy_us; /* when the last such operation ended */
	struct fmutex asking;
	pid_t asker;        /* the helper's; 0: no helper works on this inode */
	bool asks;          /* the helper's request has arrived here */
	uint64_t asked_end; /* since the query of the helper began: */
	uint64_t sent_to_helper, sent_most;
	bool changed;
	uint32_t n_short;  /* short replies; their pages still exist */
	uint64_t end;      /* lower bound of where their zeros begin */
	struct list reads; /* in flight, in order of arrival */
	uint64_t next_seq, gone_seq;
	/* of n_short: pages dropped, but reads in flight may still use them */
	uint32_t n_gone, n_gone_next;
	struct waitq gone, answered;
	bool previous; /* pages of a previous daemon exist: in previous_sizes, or being dropped */
	struct list previous_link;
	struct mail previous_gone;
	bool tail;                     /* a drop_tail fiber exists */
	uint64_t tail_from, tail_last; /* least and greatest of the smaller sizes in replies */
};

#define NO_TAIL      UINT64_MAX
#define ASK_ANYWAY   UINT64_MAX
#define SIZE_UNKNOWN UINT64_MAX

static struct kernel_size *find(const struct leatfs *fs, struct ino ino)
{
	struct hmap_node *n;

	if (fs->pages.sizes.n == 0)
		return NULL;
	for (n = hmap_find(&fs->pages.sizes, hash_u64(ino.v)); n != NULL; n = hmap_find_next(n))
		if (ino_equal(container_of(n, struct kernel_size, node)->ino, ino))
			return container_of(n, struct kernel_size, node);
	return NULL;
}

struct kernel_size *kernel_size_get(struct leatfs *fs, struct ino ino)
{
	struct kernel_size *k = find(fs, ino);

	if (k == NULL) {
		k = malloc(sizeof(*k));
		if (k == NULL)
			return NULL;
		*k = (struct kernel_size){.magic = KERNEL_SIZE_MAGIC,
					 .fs = fs,
					 .ino = ino,
					 .most = SIZE_UNKNOWN,
					 .noted = SIZE_UNKNOWN,
					 .tail_from = NO_TAIL};
		fmutex_init(&k->asking);
		waitq_init(&k->gone);
		waitq_init(&k->answered);
		list_init(&k->reads);
		hmap_insert(&fs->pages.sizes, &k->node, hash_u64(ino.v));
	}
	k->n_refs++;
	return k;
}

void kernel_size_put(struct kernel_size *k)
{
	if (k == NULL)
		return;
	ASSERT(k->n_refs > 0);
	if (--k->n_refs > 0)
		return;
	ASSERT(k->n_busy == 0 && k->n_short == 0 && list_empty(&k->reads));
	ASSERT(!k->previous && !k->tail && k->asker == 0);
	hmap_remove(&k->fs->pages.sizes, &k->node);
	k->magic = 0;
	free(k);
}

bool kernel_size_within(const struct kernel_size *k, uint64_t end)
{
	return k->most <= end;
}

/* ---- what the kernel does by itself ---- */

struct kernel_size *kernel_size_busy(struct leatfs *fs, struct ino ino)
{
	struct kernel_size *k = find(fs, ino);

	if (k == NULL)
		return NULL;
	k->n_refs++;
	k->n_busy++;
	return k;
}

void kernel_size_idle(struct kernel_size *k)
{
	if (k == NULL)
		return;
	ASSERT(k->n_busy > 0);
	k->n_busy--;
	k->busy_us = loop_now_us();
	kernel_size_put(k);
}

void kernel_size_wait(struct kernel_size *k)
{
	uint64_t until = loop_deadline_ms(WAIT_MS);

	while (k->asks && waitq_wait(&k->answered, until) == 0)
		;
}

void kernel_size_forget_attr(struct leatfs *fs, struct ino ino)
{
	struct kernel_size *k = find(fs, ino);

	fuse_lowlevel_notify_inval_inode(fs->session, node_of(fs, ino), -1, 0);
	if (k != NULL)
		k->busy_us = loop_now_us();
}

/* i_size may change from now on. */
static void unnoted(struct kernel_size *k)
{
	k->noted = SIZE_UNKNOWN;
	k->changed = true;
}

static void grown(struct kernel_size *k, uint64_t size)
{
	if (k->most < size)
		k->most = size;
	if (k->sent_most < size)
		k->sent_most = size;
}

void kernel_size_grown(struct leatfs *fs, struct ino ino, uint64_t size)
{
	struct kernel_size *k = find(fs, ino);

	if (k == NULL)
		return;
	grown(k, size);
	if (size == 0 || k->noted == SIZE_UNKNOWN || k->noted < size)
		unnoted(k);
	k->busy_us = loop_now_us();
}

void kernel_size_visible(struct kernel_size *k, uint64_t end)
{
	k->n_refs++;
	if (k->n_short++ == 0 || end < k->end)
		k->end = end;
	if (end < k->noted)
		unnoted(k);
}

/* Ends short pages that have been dropped. A read(2) that finds pages in the cache, and waits for a
 * later page that another request brings, keeps the earlier pages even if they are dropped
 * meanwhile; it checks i_size when it has all of them. So zeros can become visible until all
 * requests have been answered that were in flight when their pages were dropped. The caller has a
 * reference besides those of the pages. */
static void end_gone(struct kernel_size *k)
{
	for (;;) {
		if (k->n_gone == 0) {
			k->n_gone = k->n_gone_next;
			k->n_gone_next = 0;
			k->gone_seq = k->next_seq;
		}
		if (k->n_gone == 0)
			return;
		if (!list_empty(&k->reads) &&
		    list_entry(k->reads.next, struct kernel_size_reader, link)->seq < k->gone_seq)
			return;
		ASSERT(k->n_gone <= k->n_short && k->n_gone < k->n_refs);
		k->n_refs -= k->n_gone;
		k->n_short -= k->n_gone;
		k->n_gone = 0;
		if (k->n_short == 0)
			waitq_wake_all(&k->gone);
	}
}

static void gone(struct kernel_size *k)
{
	k->n_gone_next++;
	ASSERT(k->n_gone + k->n_gone_next <= k->n_short);
	end_gone(k);
}

void kernel_size_gone(struct kernel_size *k)
{
	k->n_refs++;
	gone(k);
	kernel_size_put(k);
}

void kernel_size_read(struct kernel_size *k, struct kernel_size_reader *r)
{
	ASSERT(k->n_busy > 0);
	r->seq = k->next_seq++;
	list_push(&k->reads, &r->link);
}

void kernel_size_answered(struct kernel_size *k, struct kernel_size_reader *r)
{
	ASSERT(k->n_busy > 0 && !list_empty(&k->reads) && r->seq < k->next_seq);
	list_remove(&r->link);
	end_gone(k);
}

/* ---- after a previous daemon ---- */

int kernel_size_previous(struct leatfs *fs, struct ino ino)
{
	struct kernel_size *k = kernel_size_get(fs, ino);

	if (k == NULL)
		return -LE_NOMEM;
	if (k->previous) {
		kernel_size_put(k);
		return 0;
	}
	k->previous = true;
	list_push(&fs->pages.previous, &k->previous_link);
	return 0;
}

/* A kernel that drops a page waits for the page's lock, which a read holds that waits for the page.
 * So all reads that were in flight have ended. */
static void previous_gone(struct mail *m)
{
	struct kernel_size *k = container_of(m, struct kernel_size, previous_gone);

	ASSERT(k->previous);
	k->previous = false;
	waitq_wake_all(&k->gone);
	kernel_size_idle(k);
}

void kernel_size_drop_previous(struct leatfs *fs)
{
	struct list *n;

	while ((n = list_pop(&fs->pages.previous)) != NULL) {
		struct kernel_size *k = container_of(n, struct kernel_size, previous_link);

		k->n_busy++;
		k->previous_gone.fn = previous_gone;
		invalidate_inode(fs, k->ino, 0, 0, &k->previous_gone);
	}
}

/* ---- sizes in replies ---- */

static bool shows_less(const struct kernel_size *k, uint64_t size)
{
	return (k->previous && size > 0) || (k->n_short > 0 && k->end < size);
}

bool kernel_size_not_notified(const struct leatfs *fs, struct ino ino, uint64_t size)
{
	const struct kernel_size *k = find(fs, ino);

	return k != NULL && shows_less(k, size);
}

/* Drops the page that the new end is in, then has the helper confirm that i_size is not above the
 * smaller size. Without that each later reply with that size would start another drop. */
static void drop_tail(void *arg)
{
	struct kernel_size *k = CAST_OBJ(arg, struct kernel_size, KERNEL_SIZE_MAGIC);
	uint64_t from, len;

	ASSERT(k->tail && k->n_short > 0);
	k->n_refs++;
	while ((from = k->tail_from) != NO_TAIL) {
		uint64_t begun_us = 0;

		len = k->tail_last - from + 1;
		k->tail_from = NO_TAIL;
		k->tail_last = 0;
		kernel_size_busy(k->fs, k->ino);
		kernel_size_wait(k);
		invalidate_inode_now(k->fs, k->ino, (int64_t)from, (int64_t)len);
		kernel_size_idle(k);
		gone(k);
		if (k->n_refs > 1) /* else no file is open, and the next open makes a new record */
			/* if it fails, the next reply with that size starts again */
			(void)(kernel_size_before_reply(k, from, &begun_us) < 0);
	}
	k->tail = false;
	kernel_size_put(k);
}

/* On a reply with a smaller size the kernel fills the rest of the last page with zeros; these must
 * not become visible when the file grows again, so a fiber drops that page after the reply is sent.
 * (The size may be a multiple of the page size: the kernel's pages may be larger.) The kernel
 * itself drops the pages after it. The fiber drops no other page: a write of this mount may hold
 * the lock of one, and itself wait for the drop. */
static void shrinks(struct kernel_size *k, uint64_t size)
{
	int rc;

	if (size == 0)
		return; /* no page has a rest */
	if (k->tail_last < size)
		k->tail_last = size;
	if (k->tail_from == NO_TAIL)
		kernel_size_visible(k, size);
	else if (size < k->end)
		k->end = size;
	k->tail_from = size < k->tail_from ? size : k->tail_from;
	if (k->tail)
		return;
	k->tail = true;
	rc = fiber_spawn("drop-tail", drop_tail, k);
	if (rc == 0)
		return;
	log_error("inode %llu: cannot drop its last page: %s; programs may read zeros after the "
		  "previous end of the file",
		  (unsigned long long)k->ino.v, status_text(rc));
	k->tail = false;
	k->tail_from = NO_TAIL;
	gone(k); /* the caller has a reference */
}

/* Limits the size in the reply to the helper. This reply does not wait until short pages are
 * dropped, since that may wait for the READ for which the helper queries. i_size was above
 * asked_end, where the data of that READ end. So zeros that begin before asked_end are already
 * visible, or do not exist, and need no limit. The exception is a page that is being cleared after
 * an earlier reply (shrinks), perhaps to a helper that the READ no longer waits for. */
static void limit_for_helper(struct kernel_size *k, uint64_t *size)
{
	uint64_t most = SIZE_UNKNOWN;

	if (k->previous)
		/* ASK_ANYWAY: no limit; after a wait that timed out */
		most = k->asked_end;
	else if (k->n_short > 0 &&
		 (k->tail || k->asked_end == ASK_ANYWAY || k->end >= k->asked_end))
		most = k->end;
	if (most < *size) {
		*size = most;
		unnoted(k);
	}
	k->sent_to_helper = *size;
}

/* True if the kernel may discard the reply to a request of begun_us. */
static bool may_discard(const struct kernel_size *k, uint64_t begun_us, uint64_t size)
{
	return size != k->noted && (k->n_busy > 0 || k->busy_us + UNCERTAIN_US >= begun_us);
}

static bool noted_since(const struct kernel_size *k, uint64_t begun_us)
{
	return k->noted != SIZE_UNKNOWN && k->noted_us >= begun_us;
}

static int ask(struct kernel_size *k, uint64_t end, uint64_t until_us,
	       struct probe_answer *ret_seen) CHECK_RESULT;

/* Has the helper make the kernel request the attributes before the reply is sent. If that works,
 * *told becomes true: the kernel then discards the reply, so the reply gives the size that the
 * helper observed. Returns true if the kernel got less than *size: the caller repeats the call when
 * no short page is left. If no helper can run, the kernel may use the old size until its next
 * request. */
static bool notify_first(struct kernel_size *k, uint64_t begun_us, uint64_t until_us,
			 uint64_t *size, bool *told)
{
	bool again = false;
	struct probe_answer seen;

	fmutex_lock(&k->asking);
	if (!noted_since(k, begun_us) && ask(k, ASK_ANYWAY, until_us, &seen) >= 0) {
		*told = true;
		again = !noted_since(k, begun_us) && !(k->changed && seen.size >= *size);
	}
	if (noted_since(k, begun_us)) {
		*told = true;
		*size = k->noted;
	}
	fmutex_unlock(&k->asking);
	return again;
}

uint64_t kernel_size_begin(struct leatfs *fs, struct ino ino, pid_t who)
{
	struct kernel_size *k = find(fs, ino);

	if (k != NULL && who != 0 && who == k->asker)
		k->asks = true;
	return loop_now_us();
}

bool kernel_size_notify(struct leatfs *fs, struct ino ino, pid_t who, uint64_t begun_us,
		     uint64_t *size)
{
	struct kernel_size *k = find(fs, ino);
	uint64_t until = loop_deadline_ms(CHUNK_LEASE_MS);
	bool waited = false, told = false, again = false;

	if (k == NULL)
		return false;
	k->n_refs++;
	if (who != 0 && who == k->asker) {
		limit_for_helper(k, size);
	} else {
		do {
			while (shows_less(k, *size) && waitq_wait(&k->gone, until) == 0)
				waited = true;
			if (begun_us == 0 || !(waited || may_discard(k, begun_us, *size)))
				break;
			again = notify_first(k, begun_us, until, size, &told);
			waited = true;
		} while ((again || shows_less(k, *size)) && loop_now_us() < until);
		if (!told && *size != k->noted)
			unnoted(k);
	}
	/* Where i_size is unknown: a READ waits for the helper, since i_size may be too large. */
	if (!told && *size < k->most && (k->most != SIZE_UNKNOWN || (who != 0 && who == k->asker)))
		shrinks(k, *size);
	if (!told)
		grown(k, *size);
	kernel_size_put(k);
	return waited;
}

/* ---- the helper's queries ---- */

struct probe_start {
	struct leatfs *fs;
	struct kernel_size_helper probe;
	int err;
};

/* Starts a helper. It is a process because a thread that waits for a request to this mount would
 * block a takeover: only the next daemon answers the request, and it starts only after all threads
 * of this daemon have ended. */
static void probe_start(void *arg)
{
	struct probe_start *p = arg;
	char name[] = "mount.leat", what[] = PROBE_SIZE;
	char *argv[] = {name, what, p->fs->mountpoint, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		p->err = errno;
		return;
	}
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	p->err = posix_spawn(&p->probe.pid, "/proc/self/exe", &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	close(fds[1]);
	if (p->err == 0)
		p->probe.fd = fds[0];
	else
		close(fds[0]);
}

/* Takes an idle helper that has reported that it is ready. Any other helper may still wait for a
 * page that a READ has locked, perhaps the READ that needs a helper now. */
static bool idle_probe(struct leatfs *fs, struct kernel_size_helper *ret_probe)
{
	for (uint32_t i = fs->pages.n_idle_probes; i-- > 0;) {
		struct kernel_size_helper p = fs->pages.idle_probes[i];
		char ready;
		ssize_t n = recv(p.fd, &ready, 1, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			continue;
		fs->pages.idle_probes[i] = fs->pages.idle_probes[--fs->pages.n_idle_probes];
		*ret_probe = p;
		if (n == 1)
			return true;
		net_close(p.fd);
	}
	return false;
}

/* Takes an idle helper, which may exit meanwhile (IDLE_MS), or starts one. */
static int probe_get(struct leatfs *fs, struct kernel_size_helper *ret_probe)
{
	struct probe_start p = {.fs = fs};

	if (idle_probe(fs, ret_probe))
		return 0;
	TRY(env_offload(fs->env, probe_start, &p));
	*ret_probe = p.probe;
	return p.err == 0 ? 0 : status_from_errno(p.err);
}

static void probe_put(struct leatfs *fs, const struct kernel_size_helper *p, bool good)
{
	if (good && fs->pages.n_idle_probes < ARRAY_SIZE(fs->pages.idle_probes))
		fs->pages.idle_probes[fs->pages.n_idle_probes++] = *p;
	else
		net_close(p->fd);
}

void kernel_size_fini(struct leatfs *fs)
{
	while (fs->pages.n_idle_probes > 0)
		net_close(fs->pages.idle_probes[--fs->pages.n_idle_probes].fd);
}

/* Sends the helper the file, and receives what the kernel has of it after the helper's request. */
static int probe_ask(struct kernel_size *k, const struct kernel_size_helper *p, uint64_t until_us,
		     struct probe_answer *ret_seen)
{
	const struct probe_file file = {node_of(k->fs, k->ino), k->asked_end};
	struct iovec answer = {ret_seen, sizeof(*ret_seen)};
	int rc = -LE_DISCONNECTED;

	ASSERT(k->asker == 0 && !k->asks);
	k->asker = p->pid;
	if (send(p->fd, &file, sizeof(file), MSG_NOSIGNAL) == sizeof(file))
		rc = net_recv_all(p->fd, &answer, 1, until_us);
	k->asker = 0;
	k->asks = false;
	waitq_wake_all(&k->answered);
	return rc;
}

static bool may_start(void *arg)
{
	const struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);

	return fs->pages.n_probes < PROBES_MAX;
}

static int run_probe(struct kernel_size *k, uint64_t until_us, struct probe_answer *ret_seen)
{
	struct leatfs *fs = k->fs;
	struct kernel_size_helper p;
	uint32_t n_idle;
	int rc;

	TRY(turnq_wait(&fs->pages.probe_turns, may_start, fs, NO_DEADLINE, until_us));
	fs->pages.n_probes++;
	metric_add(&fs->metrics.size_probes, 1);
	do {
		n_idle = fs->pages.n_idle_probes;
		rc = probe_get(fs, &p);
		if (rc < 0)
			break;
		rc = probe_ask(k, &p, until_us, ret_seen);
		probe_put(fs, &p, rc >= 0);
		if (rc >= 0 && ret_seen->err != 0) {
			fs->pages.probes_refused |= ret_seen->err == EPERM;
			rc = status_from_errno((int)ret_seen->err);
		}
	} while (rc == -LE_DISCONNECTED && n_idle > 0);
	fs->pages.n_probes--;
	turnq_wake(&fs->pages.probe_turns);
	return rc == -LE_DISCONNECTED ? -LE_IO : rc;
}

static int ask(struct kernel_size *k, uint64_t end, uint64_t until_us,
	       struct probe_answer *ret_seen)
{
	uint64_t now = loop_now_us();

	k->noted = SIZE_UNKNOWN;
	k->asked_end = end;
	k->sent_to_helper = SIZE_UNKNOWN;
	k->sent_most = 0;
	k->changed = false;
	/* If i_size is not above `end`, the helper sends no request; then this call is the change
	 * of attr_version that the helper reads i_size after. It drops attributes only, so it takes
	 * no page lock. */
	if (end != ASK_ANYWAY)
		kernel_size_forget_attr(k->fs, k->ino);
	TRY(run_probe(k, until_us, ret_seen));
	k->most = ret_seen->size > k->sent_most ? ret_seen->size : k->sent_most;
	if (!k->changed && ret_seen->size == k->sent_to_helper) {
		k->noted = ret_seen->size;
		k->noted_us = now;
	}
	return 0;
}

int kernel_size_before_reply(struct kernel_size *k, uint64_t end, uint64_t *begun_us)
{
	struct probe_answer seen;
	uint64_t now;
	int rc = 0;

	if (*begun_us == 0)
		*begun_us = loop_now_us();
	fmutex_lock(&k->asking);
	now = loop_now_us();
	if (!kernel_size_within(k, end) && now >= *begun_us + PROBE_US)
		rc = -LE_TIMEDOUT; /* other clients truncate it repeatedly */
	else if (!kernel_size_within(k, end))
		/* The first wait is short: the reply to the helper may wait for pages that wait for
		 * the caller's READ. Then the file has grown, and the caller, which reads again,
		 * needs no helper. */
		rc = ask(k, end, now + PROBE_FIRST_US + (now - *begun_us), &seen);
	fmutex_unlock(&k->asking);
	if (rc == -LE_TIMEDOUT && now < *begun_us + PROBE_US)
		return 0;
	if (rc >= 0 || rc == -LE_INTR)
		return rc;
	log_error("inode %llu: the kernel cannot be told that it is shorter: %s",
		  (unsigned long long)k->ino.v, status_text(rc));
	return -LE_IO; /* the status means nothing to the program that reads */
}

/* Queries the owner. The size that the kernel receives with it may be too small
 * (limit_for_helper), so the kernel has to drop it. */
static int ask_owner(struct kernel_size *k, uint64_t until_us, struct probe_answer *ret_seen)
{
	int rc;

	fmutex_lock(&k->asking);
	rc = ask(k, ASK_ANYWAY, until_us, ret_seen);
	kernel_size_forget_attr(k->fs, k->ino);
	fmutex_unlock(&k->asking);
	return rc;
}

int kernel_owner_refresh(struct leatfs *fs, struct ino ino)
{
	const struct cred cred = {.flags = CRED_CHECKED};
	struct kernel_size *k = kernel_size_get(fs, ino);
	uint64_t until = loop_deadline_ms(OWNER_MS), pause_us = OWNER_PAUSE_US;
	struct probe_answer seen;
	struct attr attr;
	int rc;

	if (k == NULL)
		return -LE_NOMEM;
	/* Repeats, since the kernel discards a reply when a write or a drop of pages ends before
	 * it. */
	for (;;) {
		/* The reply to the helper would give the kernel the whole size, so that zeros in
		 * these pages become visible. */
		rc = k->previous ? -LE_NOT_READY : ll_getattr(fs->client, &cred, ino, &attr);
		if (rc >= 0)
			rc = ask_owner(k, until, &seen);
		if (rc < 0 || (seen.uid == attr.uid && seen.gid == attr.gid))
			break;
		rc = fiber_sleep_us(pause_us);
		if (rc >= 0 && loop_now_us() >= until)
			rc = -LE_TIMEDOUT;
		if (rc < 0)
			break;
		pause_us = pause_us * 2 < OWNER_PAUSE_MAX_US ? pause_us * 2 : OWNER_PAUSE_MAX_US;
	}
	kernel_size_put(k);
	return rc;
}
