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

struct known_size {
	struct hmap_node node; /* of fs->known_sizes, by ino */
	struct leatfs *fs;
	struct ino ino;
	uint32_t n_refs;
	uint64_t most;      /* the kernel believes in no more */
	uint64_t era; /* what the kernel asked for before it changed, it does not believe */
	struct fmutex asking;
	uint64_t told_most; /* since it is asked */
	uint64_t asked_end;
	pid_t asker; /* 0: nobody asks */
	uint32_t n_short; /* zeros behind the end of the file in pages that are there still */
	uint64_t end;     /* where the first of them begin, at the least */
	struct waitq gone;
	bool tail; /* has a fiber */
	uint64_t tail_from, tail_last; /* of the sizes that were told: the least and the most */
};

#define NO_TAIL      UINT64_MAX
#define ASK_ANYWAY   UINT64_MAX
#define SIZE_UNKNOWN UINT64_MAX /* most: it has not been asked yet */

static struct known_size *find(const struct leatfs *fs, struct ino ino)
{
	struct hmap_node *n = hmap_find(&fs->known_sizes, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n))
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
		*k = (struct known_size){
			.fs = fs, .ino = ino, .most = SIZE_UNKNOWN, .era = 1, .tail_from = NO_TAIL};
		fmutex_init(&k->asking);
		waitq_init(&k->gone);
		hmap_insert(&fs->known_sizes, &k->node, hash_u64(ino.v));
	}
	k->n_refs++;
	return k;
}

void known_size_put(struct leatfs *fs, struct known_size *k)
{
	if (k == NULL || --k->n_refs > 0)
		return;
	hmap_remove(&fs->known_sizes, &k->node);
	free(k);
}

bool known_size_within(const struct known_size *k, uint64_t end)
{
	return k->most <= end;
}

void known_size_grown(struct leatfs *fs, struct ino ino, uint64_t size)
{
	struct known_size *k = fs->known_sizes.n > 0 ? find(fs, ino) : NULL;

	if (k == NULL)
		return;
	if (k->most < size)
		k->most = size;
	if (k->told_most < size)
		k->told_most = size;
}

static bool shows_less(const struct known_size *k, uint64_t size)
{
	return k->n_short > 0 && k->end < size;
}

bool known_size_untold(const struct leatfs *fs, struct ino ino, uint64_t size)
{
	const struct known_size *k = fs->known_sizes.n > 0 ? find(fs, ino) : NULL;

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
		invalidate_inode_now(k->fs, k->ino, (int64_t)from, (int64_t)len);
		k->era++;
		known_size_gone(k->fs, k);
		(void)(known_size_ask(k->fs, k, from, &begun_us) < 0); /* then told again */
	}
	k->tail = false;
	known_size_put(k->fs, k);
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
	known_size_gone(k->fs, k);
}

/* Who asks for a read does not wait for pages that may wait for that read. The kernel believed in
 * more than that read reaches: so where the zeros begin before that, they are either seen already,
 * or there are none. */
static void tell_asker(struct known_size *k, uint64_t *size)
{
	if (shows_less(k, *size) && (k->asked_end == ASK_ANYWAY || k->end >= k->asked_end))
		*size = k->end;
}

uint64_t known_size_era(const struct leatfs *fs, struct ino ino)
{
	const struct known_size *k = fs->known_sizes.n > 0 ? find(fs, ino) : NULL;

	return k != NULL ? k->era : 0;
}

static int ask(struct leatfs *fs, struct known_size *k, uint64_t end, uint64_t until_us);

/* What is answered now the kernel will not believe: it is told before by somebody who asks anew. */
static void tell_before(struct leatfs *fs, struct known_size *k, uint64_t until_us)
{
	fmutex_lock(&k->asking);
	/* In vain: until it asks again it has the former one. */
	(void)(ask(fs, k, ASK_ANYWAY, until_us) < 0);
	fmutex_unlock(&k->asking);
}

bool known_size_tell(struct leatfs *fs, struct ino ino, pid_t who, uint64_t era,
		     uint64_t *size)
{
	struct known_size *k = fs->known_sizes.n > 0 ? find(fs, ino) : NULL;
	uint64_t until = loop_deadline_ms(CHUNK_LEASE_MS);
	bool waited = false;

	if (k == NULL)
		return false;
	k->n_refs++;
	if (who != 0 && who == k->asker) {
		tell_asker(k, size);
	} else {
		do {
			while (shows_less(k, *size) && waitq_wait(&k->gone, until) == 0)
				waited = true;
			if (!waited && (era == 0 || era == k->era))
				break;
			tell_before(fs, k, until);
			waited = true;
		} while (shows_less(k, *size) && loop_now_us() < until);
	}
	if (*size < k->most && k->most != SIZE_UNKNOWN)
		shrinks(k, *size);
	known_size_grown(fs, ino, *size);
	known_size_put(fs, k);
	return waited;
}

void known_size_shown(struct known_size *k, uint64_t end)
{
	k->n_refs++;
	if (k->n_short++ == 0 || end < k->end)
		k->end = end;
}

void known_size_gone(struct leatfs *fs, struct known_size *k)
{
	if (--k->n_short == 0)
		waitq_wake_all(&k->gone);
	known_size_put(fs, k);
}

/* ---- asking ---- */

struct probe {
	const struct leatfs *fs;
	struct known_size *k;
	int fd; /* its answer comes here */
	int err;
};

/* A process, and not a thread: one that waits for a request of ours can be ended only by the next
 * daemon, which begins only when all threads of this one have ended. */
static void probe_start(void *arg)
{
	struct probe *p = arg;
	char ino[24], end[24], name[] = "mount.leat", what[] = PROBE_SIZE;
	char *argv[] = {name, what, (char *)(uintptr_t)p->fs->mountpoint, ino, end, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int fds[2];

	snprintf(ino, sizeof(ino), "%llu", (unsigned long long)node_of(p->k->ino));
	snprintf(end, sizeof(end), "%llu", (unsigned long long)p->k->asked_end);
	if (pipe2(fds, O_CLOEXEC) < 0) {
		p->err = errno;
		return;
	}
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	p->err = posix_spawn(&p->k->asker, "/proc/self/exe", &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	close(fds[1]);
	if (p->err == 0)
		p->fd = fds[0];
	else
		close(fds[0]);
}

/* What it answers: the kernel's size, once it has been told. */
static int probe_end(const struct probe *p, uint64_t until_us, uint64_t *ret_size)
{
	int rc = net_poll(p->fd, POLLIN, until_us);

	if (rc >= 0)
		rc = read(p->fd, ret_size, sizeof(*ret_size)) == sizeof(*ret_size) ? 0 : -LE_IO;
	net_close(p->fd);
	return rc;
}

static int ask(struct leatfs *fs, struct known_size *k, uint64_t end, uint64_t until_us)
{
	struct probe p = {.fs = fs, .k = k};
	uint64_t size;
	int rc;

	metric_add(&fs->metrics.size_probes, 1);
	k->told_most = 0;
	k->asked_end = end;
	/* What it was told before and has not noted yet it forgets (attributes only: takes no lock
	 * of a page). Only where others have cut the file: else who looks for what another mount
	 * has just added could be kept from it. */
	if (k->most != SIZE_UNKNOWN && end != ASK_ANYWAY) {
		fuse_lowlevel_notify_inval_inode(fs->session, node_of(k->ino), -1, 0);
		k->era++;
	}
	rc = env_offload(fs->env, probe_start, &p);
	if (rc >= 0)
		rc = p.err != 0 ? status_from_errno(p.err) : probe_end(&p, until_us, &size);
	k->asker = 0;
	if (rc >= 0)
		k->most = size > k->told_most ? size : k->told_most;
	return rc;
}

int known_size_ask(struct leatfs *fs, struct known_size *k, uint64_t end, uint64_t *begun_us)
{
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
		rc = ask(fs, k, end, now + PROBE_FIRST_US + (now - *begun_us));
	fmutex_unlock(&k->asking);
	if (rc == -LE_TIMEDOUT && now < *begun_us + PROBE_US)
		return 0;
	if (rc < 0 && rc != -LE_INTR)
		log_error("inode %llu: the kernel cannot be told that it is shorter: %s",
			  (unsigned long long)k->ino.v, status_text(rc));
	return rc;
}
