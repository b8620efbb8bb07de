/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/invalidate.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"

/* The mutex of an invalidator protects its ring. */
#define RING 4096u
/* How long a write that bypasses the page cache waits for pages at most, since one may be held
 * without end; and how long if it would use the kernel's last background requests. */
#define BEHIND_MS 5000u
#define BEHIND_LAST_MS 20u

/* A job that a fiber waits for. If the fiber has stopped waiting (abandoned), job_done frees it. */
struct done {
	struct mail mail;
	struct waitq waiting;
	bool done, abandoned;
};

struct job {
	struct ino ino;
	int64_t off, len;
	struct mail *then; /* posted to the loop after the notification; may be NULL */
};

struct invalidator {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct leatfs *fs;
	uint32_t head, n;
	bool stop;
	struct job ring[RING];
};

static void *run(void *arg)
{
	struct invalidator *v = arg;

	pthread_mutex_lock(&v->lock);
	for (;;) {
		while (v->n == 0 && !v->stop)
			pthread_cond_wait(&v->wake, &v->lock);
		if (v->n == 0)
			break;
		struct job j = v->ring[v->head];
		v->head = (v->head + 1) % RING;
		v->n--;
		pthread_mutex_unlock(&v->lock);
		fuse_lowlevel_notify_inval_inode(v->fs->session, node_of(v->fs, j.ino), j.off,
						 j.len);
		if (j.then)
			loop_post(v->fs->loop, j.then);
		pthread_mutex_lock(&v->lock);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

static int start(struct leatfs *fs, struct invalidator **ret_v)
{
	struct invalidator *v = calloc(1, sizeof(*v));

	if (!v)
		return -LE_NOMEM;
	v->fs = fs;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->wake, NULL);
	int err = pthread_create(&v->thread, NULL, run, v);
	if (err) {
		free(v);
		return status_from_errno(err);
	}
	pthread_setname_np(v->thread, "invalidate");
	*ret_v = v;
	return 0;
}

static void stop(struct invalidator **at)
{
	struct invalidator *v = *at;

	if (!v)
		return;
	pthread_mutex_lock(&v->lock);
	v->stop = true;
	pthread_cond_signal(&v->wake);
	pthread_mutex_unlock(&v->lock);
	pthread_join(v->thread, NULL);
	ASSERT(v->n == 0);
	pthread_cond_destroy(&v->wake);
	pthread_mutex_destroy(&v->lock);
	free(v);
	*at = NULL;
}

int invalidator_start(struct leatfs *fs)
{
	TRY(start(fs, &fs->pages.invalidator));
	return start(fs, &fs->pages.behind);
}

void invalidator_stop(struct leatfs *fs)
{
	stop(&fs->pages.invalidator);
	stop(&fs->pages.behind);
}

static bool put(struct invalidator *v, const struct job *j)
{
	bool space;

	pthread_mutex_lock(&v->lock);
	space = v->n < RING;
	ASSERT(!v->stop && v->n <= RING);
	if (space)
		v->ring[(v->head + v->n++) % RING] = *j;
	pthread_cond_signal(&v->wake);
	pthread_mutex_unlock(&v->lock);
	return space;
}

/* Waits while the ring is full. If the invalidator is stopped meanwhile, the notification is not
 * needed. */
static void queue(struct leatfs *fs, struct invalidator **v, const struct job *j)
{
	metric_add(&fs->metrics.invalidations, 1);
	while (*v && !put(*v, j))
		fiber_sleep_us(200);
	if (!*v && j->then)
		loop_post(fs->loop, j->then);
}

void invalidate_inode(struct leatfs *fs, struct ino ino, int64_t off, int64_t len,
		      struct mail *then)
{
	queue(fs, &fs->pages.invalidator, &(struct job){ino, off, len, then});
}

static void job_done(struct mail *m)
{
	struct done *d = container_of(m, struct done, mail);

	d->done = true;
	if (d->abandoned)
		free(d);
	else
		waitq_wake_all(&d->waiting);
}

/* Waits for the job. An interrupt of the fiber takes effect after the wait. */
static void wait_for(struct done *d, uint64_t until_us)
{
	bool interrupted = false;
	int rc = 0;

	while (!d->done && rc != -LE_TIMEDOUT) {
		rc = waitq_wait(&d->waiting, until_us);
		interrupted |= rc == -LE_INTR;
	}
	if (interrupted)
		fiber_interrupt(fiber_self());
}

void invalidate_inode_now(struct leatfs *fs, struct ino ino, int64_t off, int64_t len)
{
	struct done d = {.mail.fn = job_done};

	if (!fs->pages.invalidator)
		return;
	waitq_init(&d.waiting);
	queue(fs, &fs->pages.invalidator, &(struct job){ino, off, len, &d.mail});
	while (!d.done)
		wait_for(&d, NO_DEADLINE);
}

/* Reserves a quarter of the background requests for the write-back that pages wait for. */
static bool may_wait(const struct leatfs *fs)
{
	return fs->pages.n_behind < fs->max_background - fs->max_background / 4;
}

void invalidate_inode_behind(struct leatfs *fs, struct ino ino, int64_t off, int64_t len)
{
	struct done *d = fs->pages.behind ? malloc(sizeof(*d)) : NULL;
	uint64_t until;

	if (!d) {
		invalidate_inode(fs, ino, off, len, NULL);
		return;
	}
	until = loop_deadline_ms(may_wait(fs) ? BEHIND_MS : BEHIND_LAST_MS);
	*d = (struct done){.mail.fn = job_done};
	waitq_init(&d->waiting);
	fs->pages.n_behind++;
	queue(fs, &fs->pages.behind, &(struct job){ino, off, len, &d->mail});
	wait_for(d, until);
	ASSERT(fs->pages.n_behind > 0);
	fs->pages.n_behind--;
	d->abandoned = !d->done;
	if (d->done)
		free(d);
}
