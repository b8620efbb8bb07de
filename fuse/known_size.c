/*
 * How long the kernel takes files to be of which it shows pages without a lease.
 *
 * What a reply to READ lacks becomes zeros in the kernel's pages, and its i_size tells whether
 * anybody sees them. It makes that smaller by the short reply itself, but only if nothing has
 * touched the inode's attributes since it asked: every GETATTR does, and so does every page that
 * is dropped (invalidate.c). So a short reply waits until i_size is known to be no more than what
 * it reaches. That is known of files whose size was only ever told upwards, from here; after others
 * have made one shorter, a process of its own asks the kernel for its attributes, which tells the
 * kernel (size_probe.c). And while pages with such zeros are there nobody is told that the file is
 * longer.
 *
 * For the same reason the kernel does not believe what it asked for before pages were dropped, or
 * a write of its own ended, and a read goes by the former size. So an answer to GETATTR that may
 * meet one of these is preceded by such a process, unless it is what the last one has told. Other
 * answers need none: those to LOOKUP and READDIRPLUS that the kernel does not believe are of a file
 * whose attributes it has forgotten, so it asks again; all others it believes.
 *
 * The same process has the kernel ask for owner and group when another client has changed these:
 * by an open descriptor it judges by what it was told last, who may change modes and times.
 *
 * A process's word holds because it looks behind a change of attr_version that came after it was
 * started for: what the kernel was told before, and has not noted yet, it will not believe.
 *
 * A daemon that takes over does not know where the pages that the former one has filled end in
 * zeros, nor how long the kernel takes their files to be. So of what was open then nobody is told
 * that it has any bytes until all its pages have been dropped; who asks for a short reply is told
 * of no more than that reaches, since the kernel believes in more.
 *
 * Owner: the mount's loop.
 */
#include "fuse/known_size.h"

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
#include "fuse/mount.h"

#define PROBE_US       30000000u
#define PROBE_FIRST_US 100000u
/* How long after the reply the kernel may note it, or has noted it before a request came here. */
#define DOUBT_US 10000u
/* The answer may wait for a cut, and that for a lease which who waits here has. */
#define WAIT_MS 20u
/* How long the kernel is asked to believe in another owner, less than the metadata server waits
 * for (mds/recall.c); and between the attempts. */
#define OWNER_MS           200u
#define OWNER_PAUSE_US     200u
#define OWNER_PAUSE_MAX_US 50000u
/* At once: a machine may have many files open that others cut. */
#define PROBES_MAX 32u

struct known_size {
	struct hmap_node node; /* of fs->known_sizes, by ino */
	struct leatfs *fs;
	struct ino ino;
	uint32_t n_refs;
	uint64_t most;  /* the kernel believes in no more */
	uint64_t noted; /* it believes in that, which a process has seen at asked_us or later */
	uint64_t noted_us;
	uint32_t n_busy;  /* whose ends make it disbelieve what it has asked for before */
	uint64_t busy_us; /* the last such end */
	struct fmutex asking;
	pid_t asker;        /* 0: nobody asks */
	bool asks;          /* has sent its request */
	uint64_t asked_end; /* since it is asked: */
	uint64_t told_asker, told_most;
	bool changed;
	uint32_t n_short;  /* zeros behind the end of the file in pages that are there still */
	uint64_t end;      /* where the first of them begin, at the least */
	struct list reads; /* under way, in the order in which they came */
	uint64_t next_seq, gone_seq;
	uint32_t n_gone, n_gone_next; /* of n_short: their pages wait for reads only */
	struct waitq gone, answered;
	bool former; /* pages of a former daemon are there: of former_sizes, or being dropped */
	struct list former_link;
	struct mail former_gone;
	bool tail;                     /* has a fiber */
	uint64_t tail_from, tail_last; /* of the sizes that were told: the least and the most */
};

#define NO_TAIL      UINT64_MAX
#define ASK_ANYWAY   UINT64_MAX
#define SIZE_UNKNOWN UINT64_MAX

static struct known_size *find(const struct leatfs *fs, struct ino ino)
{
	struct hmap_node *n;

	if (fs->known_sizes.n == 0)
		return NULL;
	for (n = hmap_find(&fs->known_sizes, hash_u64(ino.v)); n != NULL; n = hmap_find_next(n))
		if (ino_equal(container_of(n, struct known_size, node)->ino, ino))
			return container_of(n, struct known_size, node);
	return NULL;
}

struct known_size *known_size_get(struct leatfs *fs, struct ino ino)
{
	struct known_size *k = find(fs, ino);

	if (k == NULL) {
		k = malloc(sizeof(*k));
		if (k == NULL)
			return NULL;
		*k = (struct known_size){.fs = fs,
					 .ino = ino,
					 .most = SIZE_UNKNOWN,
					 .noted = SIZE_UNKNOWN,
					 .tail_from = NO_TAIL};
		fmutex_init(&k->asking);
		waitq_init(&k->gone);
		waitq_init(&k->answered);
		list_init(&k->reads);
		hmap_insert(&fs->known_sizes, &k->node, hash_u64(ino.v));
	}
	k->n_refs++;
	return k;
}

void known_size_put(struct known_size *k)
{
	if (k == NULL || --k->n_refs > 0)
		return;
	hmap_remove(&k->fs->known_sizes, &k->node);
	free(k);
}

bool known_size_within(const struct known_size *k, uint64_t end)
{
	return k->most <= end;
}

/* ---- what the kernel does by itself ---- */

struct known_size *known_size_busy(struct leatfs *fs, struct ino ino)
{
	struct known_size *k = find(fs, ino);

	if (k == NULL)
		return NULL;
	k->n_refs++;
	k->n_busy++;
	return k;
}

void known_size_idle(struct known_size *k)
{
	if (k == NULL)
		return;
	k->n_busy--;
	k->busy_us = loop_now_us();
	known_size_put(k);
}

void known_size_wait(struct known_size *k)
{
	uint64_t until = loop_deadline_ms(WAIT_MS);

	while (k->asks && waitq_wait(&k->answered, until) == 0)
		;
}

void known_size_forget_attr(struct leatfs *fs, struct ino ino)
{
	struct known_size *k = find(fs, ino);

	fuse_lowlevel_notify_inval_inode(fs->session, node_of(ino), -1, 0);
	if (k != NULL)
		k->busy_us = loop_now_us();
}

/* The kernel may believe in something else from now on. */
static void unnoted(struct known_size *k)
{
	k->noted = SIZE_UNKNOWN;
	k->changed = true;
}

static void grown(struct known_size *k, uint64_t size)
{
	if (k->most < size)
		k->most = size;
	if (k->told_most < size)
		k->told_most = size;
}

void known_size_grown(struct leatfs *fs, struct ino ino, uint64_t size)
{
	struct known_size *k = find(fs, ino);

	if (k == NULL)
		return;
	grown(k, size);
	if (k->noted == SIZE_UNKNOWN || k->noted < size)
		unnoted(k);
	k->busy_us = loop_now_us();
}

void known_size_emptied(struct leatfs *fs, struct ino ino)
{
	struct known_size *k = find(fs, ino);

	if (k == NULL)
		return;
	unnoted(k);
	k->busy_us = loop_now_us();
}

void known_size_shown(struct known_size *k, uint64_t end)
{
	k->n_refs++;
	if (k->n_short++ == 0 || end < k->end)
		k->end = end;
	if (end < k->noted)
		unnoted(k);
}

/* A read that finds pages, and waits for one behind them that another request brings, has the
 * former ones also when they have been dropped, and looks at the size when all are there. So zeros
 * are gone when all requests have been answered that were under way when their pages went. Who
 * calls has a reference beside theirs. */
static void end_gone(struct known_size *k)
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
		    list_entry(k->reads.next, struct known_read, link)->seq < k->gone_seq)
			return;
		k->n_refs -= k->n_gone;
		k->n_short -= k->n_gone;
		k->n_gone = 0;
		if (k->n_short == 0)
			waitq_wake_all(&k->gone);
	}
}

static void gone(struct known_size *k)
{
	k->n_gone_next++;
	end_gone(k);
}

void known_size_gone(struct known_size *k)
{
	k->n_refs++;
	gone(k);
	known_size_put(k);
}

void known_size_read(struct leatfs *fs, struct ino ino, struct known_read *r)
{
	r->k = known_size_busy(fs, ino);
	if (r->k == NULL)
		return;
	r->seq = r->k->next_seq++;
	list_push(&r->k->reads, &r->link);
}

void known_size_answered(struct known_read *r)
{
	if (r->k == NULL)
		return;
	list_remove(&r->link);
	end_gone(r->k);
	known_size_idle(r->k);
}

/* ---- after a former daemon ---- */

int known_size_former(struct leatfs *fs, struct ino ino)
{
	struct known_size *k = known_size_get(fs, ino);

	if (k == NULL)
		return -LE_NOMEM;
	if (k->former) {
		known_size_put(k);
		return 0;
	}
	k->former = true;
	list_push(&fs->former_sizes, &k->former_link);
	return 0;
}

/* A read that waits for a page holds up what drops it: so all that were under way have ended. */
static void former_gone(struct mail *m)
{
	struct known_size *k = container_of(m, struct known_size, former_gone);

	k->former = false;
	waitq_wake_all(&k->gone);
	known_size_idle(k);
}

void known_size_drop_former(struct leatfs *fs)
{
	struct list *n;

	while ((n = list_pop(&fs->former_sizes)) != NULL) {
		struct known_size *k = container_of(n, struct known_size, former_link);

		k->n_busy++;
		k->former_gone.fn = former_gone;
		invalidate_inode_then(fs, k->ino, 0, 0, &k->former_gone);
	}
}

/* ---- telling ---- */

static bool shows_less(const struct known_size *k, uint64_t size)
{
	return (k->former && size > 0) || (k->n_short > 0 && k->end < size);
}

bool known_size_untold(const struct leatfs *fs, struct ino ino, uint64_t size)
{
	const struct known_size *k = find(fs, ino);

	return k != NULL && shows_less(k, size);
}

/* Until it is known that the kernel has noted it: else each time that it is told the same. */
static void drop_tail(void *arg)
{
	struct known_size *k = arg;
	uint64_t from, len;

	k->n_refs++;
	while ((from = k->tail_from) != NO_TAIL) {
		uint64_t begun_us = 0;

		len = k->tail_last - from + 1;
		k->tail_from = NO_TAIL;
		k->tail_last = 0;
		k->n_busy++;
		known_size_wait(k);
		invalidate_inode_now(k->fs, k->ino, (int64_t)from, (int64_t)len);
		k->n_busy--;
		k->busy_us = loop_now_us();
		gone(k);
		if (k->n_refs > 1) /* else nobody has it open, and the next one begins anew */
			(void)(known_size_ask(k, from, &begun_us) < 0); /* then told again */
	}
	k->tail = false;
	known_size_put(k);
}

/* Told that the file is shorter, the kernel puts zeros in the rest of the last page, which it shall
 * not show when the file is longer again; those behind it go by themselves. No others: a write
 * of our own may hold one, and waits for what is dropped. The fiber runs when the reply is sent. */
static void shrinks(struct known_size *k, uint64_t size)
{
	int rc;

	if (size % (uint64_t)sysconf(_SC_PAGESIZE) == 0)
		return; /* no page has a rest */
	if (k->tail_last < size)
		k->tail_last = size;
	if (k->tail_from == NO_TAIL)
		known_size_shown(k, size);
	else if (size < k->end)
		k->end = size;
	k->tail_from = size < k->tail_from ? size : k->tail_from;
	if (k->tail)
		return;
	k->tail = true;
	rc = fiber_spawn("drop-tail", drop_tail, k);
	if (rc == 0)
		return;
	log_error("inode %llu: the kernel may show zeros: %s", (unsigned long long)k->ino.v,
		  status_text(rc));
	k->tail = false;
	k->tail_from = NO_TAIL;
	gone(k); /* who is told has a reference */
}

/* Who asks for a read does not wait for pages that may wait for that read. The kernel believed in
 * more than that read reaches: so where the zeros begin before that, they are either seen already,
 * or there are none. */
static void tell_asker(struct known_size *k, uint64_t *size)
{
	uint64_t most = SIZE_UNKNOWN;

	if (k->former)
		most = k->asked_end; /* perhaps ASK_ANYWAY, when what goes late is not waited for */
	else if (k->n_short > 0 && (k->asked_end == ASK_ANYWAY || k->end >= k->asked_end))
		most = k->end;
	if (most < *size) {
		*size = most;
		unnoted(k);
	}
	k->told_asker = *size;
}

/* The kernel may not believe the answer to what it has asked for at begun_us. */
static bool doubtful(const struct known_size *k, uint64_t begun_us, uint64_t size)
{
	return size != k->noted && (k->n_busy > 0 || k->busy_us + DOUBT_US >= begun_us);
}

static bool noted_since(const struct known_size *k, uint64_t begun_us)
{
	return k->noted != SIZE_UNKNOWN && k->noted_us >= begun_us;
}

static int ask(struct known_size *k, uint64_t end, uint64_t until_us,
	       struct probe_answer *ret_seen) CHECK_RESULT;

/* It is told before, by somebody who asks anew. True: to be told again, when it shows no less.
 * told: it will not believe the answer itself. If nobody can ask, it may have the former size until
 * it asks again. */
static bool tell_before(struct known_size *k, uint64_t begun_us, uint64_t until_us, uint64_t *size,
			bool *told)
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

uint64_t known_size_begin(struct leatfs *fs, struct ino ino, pid_t who)
{
	struct known_size *k = find(fs, ino);

	if (k != NULL && who != 0 && who == k->asker)
		k->asks = true;
	return loop_now_us();
}

bool known_size_tell(struct leatfs *fs, struct ino ino, pid_t who, uint64_t begun_us,
		     uint64_t *size)
{
	struct known_size *k = find(fs, ino);
	uint64_t until = loop_deadline_ms(CHUNK_LEASE_MS);
	bool waited = false, told = false, again = false;

	if (k == NULL)
		return false;
	k->n_refs++;
	if (who != 0 && who == k->asker) {
		tell_asker(k, size);
	} else {
		do {
			while (shows_less(k, *size) && waitq_wait(&k->gone, until) == 0)
				waited = true;
			if (begun_us == 0 || !(waited || doubtful(k, begun_us, *size)))
				break;
			again = tell_before(k, begun_us, until, size, &told);
			waited = true;
		} while ((again || shows_less(k, *size)) && loop_now_us() < until);
		if (!told && *size != k->noted)
			unnoted(k);
	}
	if (!told && *size < k->most && k->most != SIZE_UNKNOWN)
		shrinks(k, *size);
	if (!told)
		grown(k, *size);
	known_size_put(k);
	return waited;
}

/* ---- asking ---- */

struct probe_start {
	struct leatfs *fs;
	struct size_probe probe;
	int err;
};

/* A process, and not a thread: one that waits for a request of ours can be ended only by the next
 * daemon, which begins only when all threads of this one have ended. */
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

/* One that has said that it is ready. Who has not may wait for a page that a read has locked, which
 * may be what somebody asks for. */
static bool idle_probe(struct leatfs *fs, struct size_probe *ret_probe)
{
	for (uint32_t i = fs->n_idle_probes; i-- > 0;) {
		struct size_probe p = fs->idle_probes[i];
		char ready;
		ssize_t n = recv(p.fd, &ready, 1, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			continue;
		fs->idle_probes[i] = fs->idle_probes[--fs->n_idle_probes];
		*ret_probe = p;
		if (n == 1)
			return true;
		net_close(p.fd);
	}
	return false;
}

/* One that has nothing to do, and may have ended for that, or a new one. */
static int probe_get(struct leatfs *fs, struct size_probe *ret_probe)
{
	struct probe_start p = {.fs = fs};

	if (idle_probe(fs, ret_probe))
		return 0;
	TRY(env_offload(fs->env, probe_start, &p));
	*ret_probe = p.probe;
	return p.err == 0 ? 0 : status_from_errno(p.err);
}

static void probe_put(struct leatfs *fs, const struct size_probe *p, bool good)
{
	if (good && fs->n_idle_probes < ARRAY_SIZE(fs->idle_probes))
		fs->idle_probes[fs->n_idle_probes++] = *p;
	else
		net_close(p->fd);
}

void known_size_fini(struct leatfs *fs)
{
	while (fs->n_idle_probes > 0)
		net_close(fs->idle_probes[--fs->n_idle_probes].fd);
}

/* What it answers: what the kernel believes in, once it has been told. */
static int probe_ask(struct known_size *k, const struct size_probe *p, uint64_t until_us,
		     struct probe_answer *ret_seen)
{
	const struct probe_file file = {node_of(k->ino), k->asked_end};
	struct iovec answer = {ret_seen, sizeof(*ret_seen)};
	int rc = -LE_DISCONNECTED;

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
	const struct leatfs *fs = arg;

	return fs->n_probes < PROBES_MAX;
}

static int run_probe(struct known_size *k, uint64_t until_us, struct probe_answer *ret_seen)
{
	struct leatfs *fs = k->fs;
	struct size_probe p;
	uint32_t n_idle;
	int rc;

	TRY(turnq_wait(&fs->probe_turns, may_start, fs, NO_DEADLINE, until_us));
	fs->n_probes++;
	metric_add(&fs->metrics.size_probes, 1);
	do {
		n_idle = fs->n_idle_probes;
		rc = probe_get(fs, &p);
		if (rc < 0)
			break;
		rc = probe_ask(k, &p, until_us, ret_seen);
		probe_put(fs, &p, rc >= 0);
		if (rc >= 0 && ret_seen->err != 0) {
			fs->probes_refused |= ret_seen->err == EPERM;
			rc = status_from_errno((int)ret_seen->err);
		}
	} while (rc == -LE_DISCONNECTED && n_idle > 0);
	fs->n_probes--;
	turnq_wake(&fs->probe_turns);
	return rc == -LE_DISCONNECTED ? -LE_IO : rc;
}

static int ask(struct known_size *k, uint64_t end, uint64_t until_us, struct probe_answer *ret_seen)
{
	uint64_t now = loop_now_us();

	k->noted = SIZE_UNKNOWN;
	k->asked_end = end;
	k->told_asker = SIZE_UNKNOWN;
	k->told_most = 0;
	k->changed = false;
	/* Where it is believed already in no more than that, nobody asks: then this is the change
	 * that is looked behind (attributes only: takes no lock of a page). */
	if (end != ASK_ANYWAY)
		known_size_forget_attr(k->fs, k->ino);
	TRY(run_probe(k, until_us, ret_seen));
	k->most = ret_seen->size > k->told_most ? ret_seen->size : k->told_most;
	if (!k->changed && ret_seen->size == k->told_asker) {
		k->noted = ret_seen->size;
		k->noted_us = now;
	}
	return 0;
}

int known_size_ask(struct known_size *k, uint64_t end, uint64_t *begun_us)
{
	struct probe_answer seen;
	uint64_t now;
	int rc = 0;

	if (*begun_us == 0)
		*begun_us = loop_now_us();
	fmutex_lock(&k->asking);
	now = loop_now_us();
	if (!known_size_within(k, end) && now >= *begun_us + PROBE_US)
		rc = -LE_TIMEDOUT; /* it is cut again and again */
	else if (!known_size_within(k, end))
		/* At first not for long: its answer may wait for pages that wait for who asks, who
		 * then need not ask, since the file has become longer. */
		rc = ask(k, end, now + PROBE_FIRST_US + (now - *begun_us), &seen);
	fmutex_unlock(&k->asking);
	if (rc == -LE_TIMEDOUT && now < *begun_us + PROBE_US)
		return 0;
	if (rc >= 0 || rc == -LE_INTR)
		return rc;
	log_error("inode %llu: the kernel cannot be told that it is shorter: %s",
		  (unsigned long long)k->ino.v, status_text(rc));
	return -LE_IO; /* the program that reads has no part in why */
}

/* The size that it is told for this may be less than there is: it does not keep it. */
static int ask_owner(struct known_size *k, uint64_t until_us, struct probe_answer *ret_seen)
{
	int rc;

	fmutex_lock(&k->asking);
	rc = ask(k, ASK_ANYWAY, until_us, ret_seen);
	known_size_forget_attr(k->fs, k->ino);
	fmutex_unlock(&k->asking);
	return rc;
}

int known_owner_ask(struct leatfs *fs, struct ino ino)
{
	const struct cred cred = {.flags = CRED_CHECKED};
	struct known_size *k = known_size_get(fs, ino);
	uint64_t until = loop_deadline_ms(OWNER_MS), pause_us = OWNER_PAUSE_US;
	struct probe_answer seen;
	struct attr attr;
	int rc;

	if (k == NULL)
		return -LE_NOMEM;
	/* It does not believe an answer that a write, or the end of pages, has overtaken. */
	for (;;) {
		rc = ll_getattr(fs->client, &cred, ino, &attr);
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
	known_size_put(k);
	return rc;
}
