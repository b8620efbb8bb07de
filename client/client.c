#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dir.h"
#include "client/io.h"
#include "client/kept.h"
#include "client/session.h"
#include "common/base/log.h"

#define TICK_US       100000u
#define SMALL_SHARE   8u  /* of slot_memory is for small slots */
#define SEAL_SHARE    16u /* of it is for compressed writes */
#define SLOTS_MIN     16u
#define SEALS_MIN     2u
#define DRAIN_LOOK_US 1000u

/* ---- background ---- */

int client_bg_spawn(struct client *c, const char *name, void (*fn)(void *arg), void *arg)
{
	int rc;

	latch_add(&c->bg, 1);
	rc = fiber_spawn_on(c->loop, name, fn, arg);
	if (rc < 0)
		latch_done(&c->bg);
	return rc;
}

void client_bg_end(struct client *c)
{
	latch_done(&c->bg);
}

uint64_t client_deadline(const struct client *c)
{
	uint64_t at = loop_deadline_ms(c->params.request_timeout_ms);

	return at < fiber_deadline() ? at : fiber_deadline();
}

/* Outside of fibers: sends what is old, forgets what is stale. */
static void tick(struct timer *t)
{
	struct client *c = container_of(t, struct client, tick);
	uint64_t now = loop_now_us(), age = (uint64_t)c->params.dirty_ms * 1000;

	if (c->stopping)
		return;
	if (now >= age)
		gather_submit_all(c, now - age + 1);
	ra_expire(c);
	lease_tick(c);
	kept_tick(c);
	timer_set(&c->tick, now + TICK_US);
}

/* ---- start and end ---- */

static int make_slots(struct client *c)
{
	uint64_t memory = c->params.slot_memory, small = memory / SMALL_SHARE;
	uint64_t seals = memory / SEAL_SHARE, n = (memory - small - seals) / LL_SLOT_SIZE;

	c->block = malloc(LEAT_BLOCK_SIZE_MAX);
	if (c->block == NULL)
		return -LE_NOMEM;
	TRY(slot_pool_create(LL_SLOT_SIZE, n < SLOTS_MIN ? SLOTS_MIN : (uint32_t)n, &c->slots));
	TRY(slot_pool_create(SMALL_SLOT_SIZE, (uint32_t)(small / SMALL_SLOT_SIZE), &c->small));
	n = seals / SEAL_SLOT_SIZE;
	TRY(slot_pool_create(SEAL_SLOT_SIZE, n < SEALS_MIN ? SEALS_MIN : (uint32_t)n, &c->seals));
	TRY(c->transport->ops->add_pool(c->transport, c->slots, POOL_REMOTE));
	TRY(c->transport->ops->add_pool(c->transport, c->seals, POOL_REMOTE));
	return c->transport->ops->add_pool(c->transport, c->small, POOL_REMOTE);
}

static void set_name(struct client *c, const char *name, const char *host)
{
	if (host != NULL)
		snprintf(c->host, sizeof(c->host), "%s", host);
	else if (gethostname(c->host, sizeof(c->host) - 1) != 0)
		snprintf(c->host, sizeof(c->host), "client");
	if (name != NULL)
		snprintf(c->name, sizeof(c->name), "%s", name);
	else
		snprintf(c->name, sizeof(c->name), "%.40s.%d", c->host, (int)getpid());
}

static void free_files(struct client *c)
{
	struct list *l;

	while ((l = list_pop(&c->free_files)) != NULL)
		free(list_entry(l, struct ll_file, link));
}

/* Also of a client that was made by half. Yields. */
static void destroy(struct client *c)
{
	c->stopping = true;
	waitq_wake_all(&c->company);
	timer_cancel(&c->tick);
	if (c->keepalive != NULL)
		fiber_interrupt(c->keepalive);
	latch_wait(&c->bg);
	dir_forget_all(c);
	grant_return_all(c);
	session_stop(c);
	map_fini(&c->map);
	seq_table_fini(&c->mds_seqs);
	inode_table_fini(c);
	lease_fini(c);
	names_fini(&c->names);
	wb_fini(&c->wb);
	ra_fini(&c->ra);
	free_files(c);
	read_many_fini(c);
	if (c->slots != NULL)
		slot_pool_destroy(c->slots);
	if (c->small != NULL)
		slot_pool_destroy(c->small);
	if (c->seals != NULL)
		slot_pool_destroy(c->seals);
	free(c->block);
	c->magic = 0;
	free(c);
}

int client_create(const struct client_options *opts, struct client **ret_client)
{
	struct client *c = calloc(1, sizeof(*c));
	uint64_t deadline;
	int rc;

	if (c == NULL)
		return -LE_NOMEM;
	c->magic = CLIENT_MAGIC;
	c->loop = loop_self();
	c->env = loop_env(c->loop);
	c->transport = opts->transport;
	c->key = opts->key;
	c->params = opts->params;
	c->invalidate = opts->invalidate;
	c->owner_changed = opts->owner_changed;
	c->arg = opts->arg;
	c->atime = opts->atime;
	set_name(c, opts->name, opts->host);
	env_random(c->env, &c->id, sizeof(c->id));
	c->kept = opts->kept;
	kept_start(c);
	memcpy(&c->spread, &c->id, sizeof(c->spread));
	latch_init(&c->bg, 0);
	waitq_init(&c->company);
	waitq_init(&c->copies_q);
	waitq_init(&c->dirs_q);
	list_init(&c->promises);
	waitq_init(&c->promise_q);
	timer_init(&c->tick, tick);
	list_init(&c->free_files);
	list_init(&c->free_groups);
	inode_table_init(c);
	names_init(&c->names, c->params.names_max);
	lease_init(c);
	wb_init(&c->wb);
	ra_init(&c->ra);
	deadline = loop_deadline_ms(c->params.mount_timeout_ms);
	rc = map_init(&c->map);
	if (rc >= 0)
		rc = make_slots(c);
	if (rc >= 0 && opts->resume != NULL)
		rc = opts->resume(opts->arg, c);
	if (rc >= 0)
		rc = session_start(c, opts->mds_addrs, deadline);
	if (rc >= 0) {
		uint64_t outer = fiber_deadline();

		fiber_set_deadline(deadline < outer ? deadline : outer);
		rc = map_refresh(c, deadline);
		/* What a request says whose time is up: here nothing was read or written. */
		if (rc == -LE_IO)
			rc = -LE_TIMEDOUT;
		fiber_set_deadline(outer);
	}
	if (rc >= 0)
		rc = kept_resume(c);
	if (rc < 0) {
		/* It is the next process': closed, what is open and locked would be lost. */
		if (c->former_us != 0)
			c->session = 0;
		destroy(c);
		return rc;
	}
	timer_set(&c->tick, loop_now_us() + TICK_US);
	*ret_client = c;
	return 0;
}

void client_destroy(struct client *c)
{
	ASSERT(c->magic == CLIENT_MAGIC);
	if (c->n_files > 0)
		log_debug("client %s: %u files are being closed", c->name, c->n_files);
	/* Requests under way end by their own deadlines: that bounds the wait for them. */
	gather_submit_all(c, UINT64_MAX);
	destroy(c);
}

static bool is_busy(const struct idata *d)
{
	return d->n_closing > 0 || d->gather.slot != NULL || !list_empty(&d->writes);
}

int ll_drain(struct client *c, uint64_t deadline_us)
{
	for (bool busy = true; busy;) {
		/* Nobody would know what of its locks is still to be set right. */
		busy = c->n_mends > 0;
		waitq_wake_all(&c->company);
		gather_submit_all(c, UINT64_MAX);
		list_for_each (l, &c->inodes.open) {
			struct idata *d = list_entry(l, struct idata, open_link);

			if (is_busy(d)) {
				busy = true;
				wb_hurry(d);
			}
		}
		if (busy && loop_now_us() >= deadline_us)
			return -LE_TIMEDOUT;
		if (busy)
			TRY(fiber_sleep_us(DRAIN_LOOK_US));
	}
	return 0;
}

struct slot_pool *ll_slots(struct client *c)
{
	return c->slots;
}

struct uuid ll_cluster(const struct client *c)
{
	return *rpc_client_cluster(c->mds);
}

void ll_stats(struct client *c, struct ll_stats *ret_stats)
{
	struct ll_stats st = c->stats;

	st.session = c->session;
	st.map_epoch = c->map.epoch;
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		const struct target *t = container_of(n, struct target, node);

		st.n_targets++;
		st.n_targets_up += t->state == TARGET_UP;
		st.grant_bytes += t->grant;
	}
	st.dirty_bytes = c->wb.dirty;
	st.slots_total =
		slot_pool_total(c->slots) + slot_pool_total(c->small) + slot_pool_total(c->seals);
	st.slots_free =
		slot_pool_free(c->slots) + slot_pool_free(c->small) + slot_pool_free(c->seals);
	st.n_inodes = (uint32_t)c->inodes.map.n;
	st.n_open = c->n_files;
	*ret_stats = st;
}
