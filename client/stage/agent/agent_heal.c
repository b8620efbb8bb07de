/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repairs damage that other processes have found in this node's copies: a loader that may not
 * write here reports the chunk. The agent trusts no report: it reads the chunk itself and repairs
 * wrong blocks from the source. One fiber, while there are reports.
 */
#include "client/stage/agent/agent_heal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/manifest_file.h"
#include "client/leat_impl.h"
#include "client/stage/agent/agent.h"
#include "client/stage/agent/agent_fiber.h"
#include "client/stage/heal.h"
#include "client/stage/store/local_store.h"
#include "client/stage/store/store_ready.h"
#include "common/base/log.h"
#include "common/rt/loop.h"

#define TRIES    5u
#define AGAIN_US 1000000u

struct work {
	struct agent *a;
	struct manifest *m;
	uint64_t chunks[AGENT_DAMAGED_MAX];
	uint32_t n;
	char id[MANIFEST_ID_SIZE];
};

static int read_source(void *arg, uint32_t file, uint64_t off, uint64_t len, void *ret_bytes)
{
	const struct work *w = arg;
	const struct uuid here = ll_cluster(w->a->fs->client);
	char path[4096];
	struct vol_file *f;
	if (!uuid_equal(&w->m->cluster, &here))
		return -LE_NOENT;
	TRY(manifest_source_path(w->m, &w->m->files[file], path));
	TRY(vol_open_for_parts(w->a->io.remote, path, &f));
	int rc = vol_pread_all(f, ret_bytes, len, off);
	vol_close(f);
	return rc;
}

/* Repairs the copy in one directory. While another process holds its lock, tries for some
 * seconds. */
static int heal_in(struct work *w, const char *dir)
{
	const struct heal_options o = {.env = w->a->io.env,
				       .to = dir,
				       .id = w->id,
				       .m = w->m,
				       .read = read_source,
				       .arg = w};
	struct heal_report r = {0};
	int rc = copy_heal(&o, w->chunks, w->n, &r);
	for (uint32_t i = 1; i < TRIES && rc == -LE_BUSY && !w->a->stopping; i++) {
		int woken = waitq_wait(&w->a->stop, loop_now_us() + AGAIN_US);
		(void)woken;
		rc = copy_heal(&o, w->chunks, w->n, &r);
	}
	metric_add(&w->a->metrics.healed, r.healed);
	if (r.healed)
		log_warn("%s/.leat/%.12s: %u damaged chunks have been put right", dir, w->id,
			 r.healed);
	if (r.left || rc < 0)
		log_warn("%s/.leat/%.12s is damaged and cannot be repaired here (%s): run leat "
			 "stage in",
			 dir, w->id,
			 rc < 0     ? status_text(rc)
			 : r.why[0] ? r.why
				    : "the source does not have it");
	return rc;
}

static void heal_copy(struct work *w)
{
	char path[4200];
	struct detail ignored = {0};
	for (uint32_t i = 0; i < w->a->n_dirs; i++) {
		snprintf(path, sizeof(path), "%.4000s/.leat/%s", w->a->dirs[i], w->id);
		if (manifest_load(w->a->io.local, path, &w->m, &ignored) < 0)
			continue;
		int rc = heal_in(w, w->a->dirs[i]);
		(void)rc; /* logged already */
		manifest_destroy(w->m);
		w->m = NULL;
	}
	w->a->look = true;
}

/* Takes all reports for one copy. */
static bool take(struct work *w)
{
	struct agent *a = w->a;
	uint32_t kept = 0;
	w->n = 0;
	if (a->n_damaged)
		memcpy(w->id, a->damaged[0].id, sizeof(w->id));
	for (uint32_t i = 0; i < a->n_damaged; i++) {
		if (strcmp(a->damaged[i].id, w->id) == 0)
			w->chunks[w->n++] = a->damaged[i].chunk;
		else
			a->damaged[kept++] = a->damaged[i];
	}
	a->n_damaged = kept;
	return w->n > 0;
}

static void heal_fiber(void *arg)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	struct work *w = calloc(1, sizeof(*w));
	struct agent_fiber self;
	agent_fiber_begin(a, &self);
	if (w)
		w->a = a;
	while (w && !a->stopping && take(w))
		heal_copy(w);
	free(w);
	a->healing = false;
	agent_fiber_end(a, &self);
}

static bool has_ready(struct agent *a, const char *id)
{
	struct local_store *s = malloc(sizeof(*s));
	bool found = false;
	for (uint32_t i = 0; s && i < a->n_dirs && !found; i++) {
		if (store_init(s, a->io.env, a->dirs[i], id) < 0)
			continue;
		found = store_is_ready(s);
		store_fini(s);
	}
	free(s);
	return found;
}

/* An IPv6 peer may use all addresses of its network. */
static bool is_same_peer(struct net_address x, struct net_address y)
{
	return x.hi == y.hi && (x.hi != 0 || x.lo == y.lo);
}

/* Returns 0 if the report can be stored, 1 if it is stored already, or -LE_BUSY. */
static int has_place(const struct agent *a, struct net_address who, const char *id, uint64_t chunk)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < a->n_damaged; i++) {
		if (a->damaged[i].chunk == chunk && strcmp(a->damaged[i].id, id) == 0)
			return 1;
		n += is_same_peer(a->damaged[i].who, who);
	}
	return n == AGENT_DAMAGED_OF || a->n_damaged == AGENT_DAMAGED_MAX ? -LE_BUSY : 0;
}

int agent_damaged(struct agent *a, const char *peer, const char *id, uint64_t chunk)
{
	struct net_address who = {0, 0};
	/* Peers with unparsable addresses count as one peer. */
	if (net_address_of_peer(peer, &who) < 0)
		who = (struct net_address){0, 0};
	if (!has_ready(a, id))
		return -LE_NOENT;
	int rc = a->stopping ? -LE_BUSY : has_place(a, who, id, chunk);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	ASSERT(a->n_damaged < AGENT_DAMAGED_MAX);
	snprintf(a->damaged[a->n_damaged].id, MANIFEST_ID_SIZE, "%s", id);
	a->damaged[a->n_damaged].who = who;
	a->damaged[a->n_damaged++].chunk = chunk;
	if (a->healing)
		return 0;
	a->healing = true;
	rc = agent_spawn(a, "agent_heal", heal_fiber, a);
	if (rc < 0)
		a->healing = false;
	return rc;
}
