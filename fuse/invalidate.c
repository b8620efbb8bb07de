/*
 * The threads that drop what the kernel caches. Notifications are synchronous and may wait for a
 * page or directory lock that is held by a request which this daemon has yet to answer: so they
 * never run on the loop. What a request is not answered before has a thread of its own: the other
 * one may be waiting for a page that this very request holds (the next write of a file begins in
 * the page in which the last one ended).
 *
 * Owner of a ring: its mutex. A fiber that finds it full waits for room.
 */
#include "fuse/mount.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"

#define RING 4096u
/* How long who writes past the pages waits for them at most: while something that never ends holds
 * one of them; and who would take the kernel's last background places. */
#define BEHIND_MS 5000u
#define BEHIND_LAST_MS 20u

/* A fiber that waits for its job, or has waited for long enough: then it is nobody's. */
struct done {
	struct mail mail;
	struct waitq waiting;
	bool done, abandoned;
};

struct job {
	struct ino ino;
	int64_t off, len;
	struct mail *then; /* posted to the loop; NULL: nobody wants to know */
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
		fuse_lowlevel_notify_inval_inode(v->fs->session, node_of(j.ino), j.off, j.len);
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
	pthread_cond_destroy(&v->wake);
	pthread_mutex_destroy(&v->lock);
	free(v);
	*at = NULL;
}

int invalidator_start(struct leatfs *fs)
{
	TRY(start(fs, &fs->invalidator));
	return start(fs, &fs->behind);
}

void invalidator_stop(struct leatfs *fs)
{
	stop(&fs->invalidator);
	stop(&fs->behind);
}

static bool put(struct invalidator *v, const struct job *j)
{
	bool room;

	pthread_mutex_lock(&v->lock);
	room = v->n < RING;
	if (room)
		v->ring[(v->head + v->n++) % RING] = *j;
	pthread_cond_signal(&v->wake);
	pthread_mutex_unlock(&v->lock);
	return room;
}

/* It may be stopped while there is no room: then nobody needs it any more. */
static void queue(struct leatfs *fs, struct invalidator **v, const struct job *j)
{
	metric_add(&fs->metrics.invalidations, 1);
	while (*v && !put(*v, j))
		fiber_sleep_us(200);
	if (!*v && j->then)
		loop_post(fs->loop, j->then);
}

void invalidate_inode(struct leatfs *fs, struct ino ino, int64_t off, int64_t len)
{
	if (fs->invalidator)
		queue(fs, &fs->invalidator, &(struct job){ino, off, len, NULL});
}

void invalidate_inode_then(struct leatfs *fs, struct ino ino, int64_t off, int64_t len,
			   struct mail *then)
{
	queue(fs, &fs->invalidator, &(struct job){ino, off, len, then});
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

/* Who is interrupted waits all the same, and is told afterwards. */
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

	if (!fs->invalidator)
		return;
	waitq_init(&d.waiting);
	queue(fs, &fs->invalidator, &(struct job){ino, off, len, &d.mail});
	while (!d.done)
		wait_for(&d, NO_DEADLINE);
}

/* A quarter of the places is for what pages wait for. */
static bool may_wait(const struct leatfs *fs)
{
	return fs->n_behind < fs->max_background - fs->max_background / 4;
}

void invalidate_inode_behind(struct leatfs *fs, struct ino ino, int64_t off, int64_t len)
{
	struct done *d = fs->behind ? malloc(sizeof(*d)) : NULL;
	uint64_t until;

	if (!d) {
		invalidate_inode(fs, ino, off, len);
		return;
	}
	until = loop_deadline_ms(may_wait(fs) ? BEHIND_MS : BEHIND_LAST_MS);
	*d = (struct done){.mail.fn = job_done};
	waitq_init(&d->waiting);
	fs->n_behind++;
	queue(fs, &fs->behind, &(struct job){ino, off, len, &d->mail});
	wait_for(d, until);
	fs->n_behind--;
	d->abandoned = !d->done;
	if (d->done)
		free(d);
}
