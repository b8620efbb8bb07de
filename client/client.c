/* SPDX-License-Identifier: Apache-2.0 */
#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cache/dentry_cache.h"
#include "client/cache/evict.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/cache/lease_return.h"
#include "client/cache/prefetch_cache.h"
#include "client/data/open_file.h"
#include "client/data/read_batch.h"
#include "client/data/space_grant.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_request.h"
#include "client/ll.h"
#include "client/ops/readdir.h"
#include "client/ops/recall.h"
#include "client/restart/reopen.h"
#include "client/restart/resume.h"
#include "client/servers/cluster_map.h"
#include "client/servers/crash_replay.h"
#include "client/servers/map_refresh.h"
#include "client/servers/request_slots.h"
#include "client/servers/restart_log.h"
#include "client/servers/session.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/status.h"
#include "common/base/uuid.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define TICK_US       100000u
#define SMALL_SHARE   8u  /* fraction of slot_memory for small slots */
#define SEAL_SHARE    16u /* fraction of slot_memory for compressed writes */
#define SLOTS_MIN     16u
#define SEALS_MIN     2u
#define DRAIN_POLL_US 1000u

/* The periodic timer, outside of fibers: sends collected writes that are older than dirty_ms, drops
 * prefetched data and leases that have expired. */
static void tick(struct timer *t)
{
	struct client *c = container_of(t, struct client, tick);
	uint64_t now = loop_now_us(), age = (uint64_t)c->params.dirty_ms * 1000;

	if (c->stopping)
		return;
	if (now >= age)
		coalesce_submit_all(c, now - age + 1);
	ra_expire(c);
	lease_tick(c);
	restart_resume_tick(c);
	timer_set(&c->tick, now + TICK_US);
}

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

/* Frees the client, even if it is only partly initialised. Yields. */
static void destroy(struct client *c)
{
	c->stopping = true;
	waitq_wake_all(&c->piggyback_q);
	timer_cancel(&c->tick);
	if (c->keepalive != NULL)
		fiber_interrupt(c->keepalive);
	latch_wait(&c->bg);
	dir_forget_all(c);
	grant_return_all(c);
	session_stop(c);
	map_fini(&c->map);
	request_slots_fini(&c->mds_seqs);
	inode_table_fini(c);
	lease_fini(c);
	dentry_cache_fini(&c->names);
	wb_fini(&c->wb);
	ra_fini(&c->ra);
	free_files(c);
	read_batch_fini(c);
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

/* Fetches the first cluster map, by `deadline` or the fiber's own deadline. Yields. */
static int first_map(struct client *c, uint64_t deadline)
{
	uint64_t outer = fiber_deadline();
	int rc;

	fiber_set_deadline(deadline < outer ? deadline : outer);
	rc = map_refresh(c, deadline);
	fiber_set_deadline(outer);
	/* A request that times out returns -LE_IO; for a mount, which has moved no data,
	 * -LE_TIMEDOUT fits. */
	return rc == -LE_IO ? -LE_TIMEDOUT : rc;
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
	c->session_ops = &restart_session_ops;
	c->restart = opts->restart;
	restart_log_start(c);
	memcpy(&c->replica_hash_seed, &c->id, sizeof(c->replica_hash_seed));
	latch_init(&c->bg, 0);
	waitq_init(&c->piggyback_q);
	waitq_init(&c->copies_q);
	waitq_init(&c->dirs_q);
	list_init(&c->unstable_writes);
	waitq_init(&c->unstable_q);
	timer_init(&c->tick, tick);
	list_init(&c->free_files);
	list_init(&c->free_groups);
	inode_table_init(c, inode_on_evict);
	dentry_cache_init(&c->names, c->params.names_max);
	lease_init(c);
	wb_init(&c->wb);
	ra_init(&c->ra);
	deadline = loop_deadline_ms(c->params.mount_timeout_ms);
	rc = map_init(&c->map);
	c->map.refresh = map_refresh_start;
	c->map.connected = crash_replay_start;
	if (rc >= 0)
		rc = make_slots(c);
	if (rc >= 0 && opts->resume != NULL)
		rc = opts->resume(opts->arg, c);
	if (rc >= 0)
		rc = session_start(c, opts, deadline);
	if (rc >= 0)
		rc = first_map(c, deadline);
	if (rc >= 0)
		rc = restart_resume(c);
	if (rc < 0) {
		/* The session belongs to the next process. Closing it would lose its open files and
		 * locks. */
		if (c->previous_us != 0)
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
		log_debug("client %s: waiting for %u files to be closed", c->name, c->n_files);
	/* Requests in flight end by their own deadlines, which bounds the wait. */
	coalesce_submit_all(c, UINT64_MAX);
	destroy(c);
}

static bool is_busy(const struct inode_io *d)
{
	return d->n_closing > 0 || d->coalesce.slot != NULL || !list_empty(&d->writes);
}

int ll_drain(struct client *c, uint64_t deadline_us)
{
	for (bool busy = true; busy;) {
		/* A process that takes over has no record of the locks that must be repaired. */
		busy = c->n_mends > 0;
		waitq_wake_all(&c->piggyback_q);
		coalesce_submit_all(c, UINT64_MAX);
		list_for_each (l, &c->inodes.open) {
			struct inode_io *d = list_entry(l, struct inode_io, open_link);

			if (is_busy(d)) {
				busy = true;
				wb_expedite(d);
			}
		}
		if (busy && loop_now_us() >= deadline_us)
			return -LE_TIMEDOUT;
		if (busy)
			TRY(fiber_sleep_us(DRAIN_POLL_US));
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

json_t *ll_memory(const struct client *c)
{
	const struct inode_table *t = &c->inodes;
	uint64_t inodes = (t->map.n + t->n_free) * sizeof(struct inode) +
			  t->n_free_data * sizeof(struct inode_io) +
			  (t->map.mask + 1) * sizeof(void *);
	const struct memory_part parts[] = {
		{"inodes", inodes, c->params.inodes_max * sizeof(struct inode)},
		{"names", dentry_cache_bytes(&c->names), 0},
		{"inodes that were forgotten", lease_returns_bytes(&c->leases.lease_returns), 0},
	};

	return memory_json(parts, ARRAY_SIZE(parts));
}

void ll_stats(struct client *c, struct ll_stats *ret_stats)
{
	struct ll_stats st = c->stats;

	st.session = c->session;
	st.map_epoch = c->map.epoch;
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		const struct target *t = container_of(n, struct target, node);

		st.grant_bytes += t->grant;
		if (t->removed)
			continue;
		st.n_targets++;
		st.n_targets_up += t->state == TARGET_UP;
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
