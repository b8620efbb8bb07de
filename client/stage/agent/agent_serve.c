/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of requests from peers: chunks, jobs and their state. Each request runs in a fiber of
 * the agent's loop. */
#include "client/stage/agent/agent_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/stage/agent/agent.h"
#include "client/stage/agent/agent_heal.h"
#include "client/stage/agent/agent_jobs.h"
#include "client/stage/agent/agent_rights.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "common/rt/loop.h"

#define READY_CHECK_US    1000000u
#define SLOT_WAIT_US      2000000u
#define CHUNK_WAIT_MAX_MS 60000u /* upper limit of wait_ms */

/* ---- READY copies ---- */

static void served_free(struct served *s)
{
	manifest_destroy(s->m);
	store_fini(&s->store);
	free(s);
}

void agent_served_drop(struct agent *a, const char *id)
{
	for (uint32_t i = 0; i < AGENT_SERVED_MAX; i++) {
		struct served *s = a->served[i];
		if (!s || s->refs || (id && strcmp(s->store.id, id) != 0))
			continue;
		a->served[i] = NULL;
		served_free(s);
	}
}

static int served_open(struct agent *a, const char *dir, const char *id, struct served **ret)
{
	struct served *s = calloc(1, sizeof(*s));
	struct detail ignored = {0};
	if (!s)
		return -LE_NOMEM;
	int rc = store_init(&s->store, a->io.env, dir, id);
	if (rc == 0 && !store_is_ready(&s->store))
		rc = -LE_NOENT;
	if (rc == 0)
		rc = manifest_load(a->io.local, s->store.dir, &s->m, &ignored);
	if (rc == 0)
		rc = store_load_places(&s->store, s->m->n_files);
	if (rc == 0)
		*ret = s;
	else
		served_free(s);
	return rc;
}

static struct served *served_find(struct agent *a, const char *id)
{
	for (uint32_t i = 0; i < AGENT_SERVED_MAX; i++) {
		struct served *s = a->served[i];
		if (s && strcmp(s->store.id, id) == 0)
			return s;
	}
	return NULL;
}

static struct served **free_place(struct agent *a)
{
	struct served **oldest = NULL;
	for (uint32_t i = 0; i < AGENT_SERVED_MAX; i++) {
		struct served **s = &a->served[i];
		if (!*s)
			return s;
		if ((*s)->refs == 0 && (!oldest || (*s)->used_us < (*oldest)->used_us))
			oldest = s;
	}
	if (oldest) {
		served_free(*oldest);
		*oldest = NULL;
	}
	return oldest;
}

static struct served *served_get(struct agent *a, const char *id)
{
	struct served *s = served_find(a, id), **place;
	for (uint32_t i = 0; i < a->n_dirs && !s; i++) {
		struct served *made;
		if (served_open(a, a->dirs[i], id, &made) < 0)
			continue;
		/* Another request may have opened it meanwhile. */
		s = served_find(a, id);
		place = s ? NULL : free_place(a);
		if (place)
			*place = s = made;
		else
			served_free(made);
	}
	return s;
}

/* Reads into the slot, at the offset that the bytes have in the chunk. Returns the chunk's
 * length. */
static int read_served(struct agent *a, const struct swarm_ask *q, struct slot *slot)
{
	const char *id = q->id;
	const struct store_part part = {q->off, q->len};
	uint64_t chunk = q->chunk;
	struct served *s = served_get(a, id);
	if (!s)
		return -LE_NOENT;
	s->refs++;
	s->used_us = loop_now_us();
	int rc = 0;
	if (s->checked_us + READY_CHECK_US < s->used_us) {
		s->checked_us = s->used_us;
		rc = store_is_ready(&s->store) ? 0 : -LE_NOENT;
	}
	if (rc == 0)
		rc = store_read_part(&s->store, s->m, chunk, &part, slot->data + part.off);
	if (rc == 0) {
		const struct manifest_file *f = &s->m->files[manifest_file_of_chunk(s->m, chunk)];
		rc = (int)manifest_chunk_len(f, chunk - f->first_chunk);
	}
	s->refs--;
	if (rc < 0 && rc != -LE_INVAL)
		agent_served_drop(a, id);
	return rc;
}

/* ---- chunks ---- */

static int from_served(struct agent *a, const struct swarm_ask *q, struct slot **ret_slot,
		       struct swarm_answer *ret_answer)
{
	struct slot *s;
	TRY(slot_get(a->serve_pool, loop_now_us() + SLOT_WAIT_US, &s));
	int rc = read_served(a, q, s);
	if (rc < 0) {
		slot_unref(s);
		return rc;
	}
	ret_answer->len = (uint32_t)rc;
	*ret_slot = s;
	return 0;
}

/* Returns 0 with a slot, or with a node to request the chunk from. */
static int find_chunk(struct agent *a, const struct swarm_ask *q, struct slot **ret_slot,
		      struct swarm_answer *ret_answer)
{
	struct agent_job *j = agent_job_find(a, bytes_str(q->id), true);
	if (!j || !j->running) {
		/* from_served yields, and the job may be freed. */
		bool failed = j && j->r.code;
		int rc = from_served(a, q, ret_slot, ret_answer);
		/* The peer need not wait for a job that has failed. */
		return rc == -LE_NOENT && failed ? -LE_AGAIN : rc;
	}
	/* The job is about to begin or to end. */
	if (!j->job->fetch || !j->swarm)
		return -LE_NOT_READY;
	return swarm_serve(j->swarm, j->job->fetch, q, a->serve_pool, ret_slot, ret_answer);
}

/* Copies text into memory that lives as long as the request. */
static int text_of(struct rpc_req *r, struct bytes b, uint32_t max, const char **ret_text)
{
	char *text = b.len < max ? rpc_req_alloc(r, b.len + 1) : NULL;
	if (!text)
		return b.len < max ? -LE_NOMEM : -LE_INVAL;
	if (b.len)
		memcpy(text, b.data, b.len);
	text[b.len] = 0;
	*ret_text = text;
	return 0;
}

static int op_peer_chunk(struct rpc_req *r, const void *vin, void *vout)
{
	const struct peer_chunk_req *in = vin;
	struct peer_chunk_rep *out = vout;
	struct agent *a = r->arg;
	struct slot *s = NULL;
	struct swarm_ask q = {.chunk = in->chunk,
			      .off = in->off,
			      .len = in->len,
			      .wait_ms = in->wait_ms < CHUNK_WAIT_MAX_MS ? in->wait_ms
									 : CHUNK_WAIT_MAX_MS,
			      .demand = in->demand != 0,
			      .again = in->again != 0};
	struct swarm_answer *answer = rpc_req_alloc(r, sizeof(*answer));
	if (!answer)
		return -LE_NOMEM;
	TRY(agent_admit(a, r->peer, PEER_READS_LESS));
	*answer = (struct swarm_answer){0};
	TRY(text_of(r, in->id, MANIFEST_ID_SIZE, &q.id));
	TRY(text_of(r, in->from, PEER_ADDR_SIZE, &q.from));
	if (q.off > MANIFEST_CHUNK || q.len > MANIFEST_CHUNK - q.off || !manifest_is_id(q.id))
		return -LE_INVAL;
	int rc = find_chunk(a, &q, &s, answer);
	if (rc < 0) {
		metric_add(&a->metrics.refused, 1);
		return rc;
	}
	out->ask = bytes_str(answer->ask);
	if (!s)
		return 0;
	if (q.off >= answer->len || q.len > answer->len - q.off) {
		slot_unref(s);
		return -LE_INVAL;
	}
	out->len = q.len ? q.len : answer->len - q.off;
	r->reply_bulk[0] = (struct slot_vec){s, q.off, out->len};
	r->n_reply_bulk = 1;
	metric_add(&a->metrics.served, 1);
	metric_add(&a->metrics.served_bytes, out->len);
	return 0;
}

/* ---- jobs ---- */

static int code_of(int rc)
{
	switch (rc) {
	case 0:
		return LEAT_STAGE_DONE;
	case -LE_NOENT:
		return LEAT_STAGE_SOURCE_GONE;
	case -LE_INVAL:
	case -LE_EXIST:
		return LEAT_STAGE_USAGE;
	default:
		return LEAT_STAGE_INTERNAL;
	}
}

/* Returns the first of the agent's directories that has the copy, or dirs[0]. Yields. */
static const char *dir_with(struct agent *a, const char *what)
{
	struct leat_stage_copy *c = malloc(sizeof(*c));
	uint32_t i = 0;
	while (c && i < a->n_dirs && copies_find(&a->io, a->dirs[i], what, c) == -LE_NOENT)
		i++;
	free(c);
	return a->dirs[i < a->n_dirs ? i : 0];
}

static int release_all(struct agent *a, const char *job)
{
	bool any = false;
	for (uint32_t i = 0; i < a->n_dirs; i++) {
		int rc = copies_release_all(&a->io, a->dirs[i], job);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
		any |= rc == 0;
	}
	return any ? 0 : -LE_NOENT;
}

static int mark(struct agent *a, const struct peer_stage_req *in, const char *what)
{
	char job[LEASE_NAME_MAX + 1] = "";
	struct copies_mark m = {job, in->ttl_s};
	enum copies_mark_what how = in->verb == PEER_PIN     ? MARK_PIN
				    : in->verb == PEER_UNPIN ? MARK_UNPIN
				    : in->verb == PEER_LEASE ? MARK_LEASE
							     : MARK_RELEASE;
	if (in->lease.len > LEASE_NAME_MAX)
		return -LE_INVAL;
	if (in->lease.len)
		memcpy(job, in->lease.data, in->lease.len);
	if (in->verb == PEER_RELEASE && !what[0])
		return release_all(a, job);
	return copies_mark(&a->io, dir_with(a, what), what, how, &m);
}

/* -LE_BUSY: further requests need the job, so it continues. */
static int cancel(struct agent *a, const struct peer_stage_req *in)
{
	struct agent_job *j = agent_job_numbered(a, in->job, in->what);
	if (!j || !j->running)
		return -LE_NOENT;
	if (j->asked > 1) {
		j->asked--;
		return -LE_BUSY;
	}
	j->cancel = 1;
	return 0;
}

static int do_verb(struct agent *a, const struct peer_stage_req *in)
{
	char what[4096];
	if (in->what.len >= sizeof(what))
		return -LE_INVAL;
	if (in->what.len)
		memcpy(what, in->what.data, in->what.len);
	what[in->what.len] = 0;
	if (strlen(what) != in->what.len)
		return -LE_INVAL;
	if (in->verb == PEER_CANCEL)
		return cancel(a, in);
	if (in->verb == PEER_EVICT) {
		agent_served_drop(a, NULL);
		a->look = true;
		return copies_evict(&a->io, dir_with(a, what), what);
	}
	return mark(a, in, what);
}

static int op_peer_stage(struct rpc_req *r, const void *vin, void *vout)
{
	const struct peer_stage_req *in = vin;
	struct peer_stage_rep *out = vout;
	struct agent *a = r->arg;
	char *message = rpc_req_alloc(r, 256);
	if (!message)
		return -LE_NOMEM;
	message[0] = 0;
	TRY(agent_admit(a, r->peer, PEER_READS_LESS | PEER_WRITES_LESS));
	if (in->verb == PEER_START) {
		out->code = (uint32_t)agent_job_start(a, in, message, 256, &out->job);
	} else if (in->verb <= PEER_RELEASE && in->verb > PEER_START) {
		int rc = do_verb(a, in);
		out->code = (uint32_t)code_of(rc);
		if (rc < 0)
			snprintf(message, 256, "%s",
				 rc == -LE_BUSY ? "it is in use" : status_text(rc));
	} else {
		return -LE_INVAL;
	}
	out->message = bytes_str(message);
	return 0;
}

static int op_peer_status(struct rpc_req *r, const void *vin, void *vout)
{
	const struct peer_status_req *in = vin;
	struct peer_status_rep *out = vout;
	struct agent *a = r->arg;
	bool one = in->job || in->what.len;
	/* The state names data sets, so check rights. */
	TRY(agent_admit(a, r->peer, PEER_READS_LESS));
	struct agent_job *j = one ? agent_job_numbered(a, in->job, in->what) : NULL;
	if (one && !j)
		return -LE_NOENT;
	char *text = j ? agent_job_json(j) : agent_json(a);
	size_t len = text ? strlen(text) : 0;
	char *copy = text ? rpc_req_alloc(r, len + 1) : NULL;
	if (copy)
		memcpy(copy, text, len + 1);
	free(text);
	if (!copy)
		return -LE_NOMEM;
	out->json = bytes_of(copy, (uint32_t)len);
	return 0;
}

static int op_peer_damaged(struct rpc_req *r, const void *vin, void *vout)
{
	const struct peer_damaged_req *in = vin;
	const char *id;
	(void)vout;
	TRY(agent_admit(r->arg, r->peer, PEER_READS_LESS));
	TRY(text_of(r, in->id, MANIFEST_ID_SIZE, &id));
	return manifest_is_id(id) ? agent_damaged(r->arg, r->peer->addr, id, in->chunk) : -LE_INVAL;
}

const struct rpc_handler agent_handlers[] = {
	{OP_peer_chunk, op_peer_chunk},
	{OP_peer_stage, op_peer_stage},
	{OP_peer_status, op_peer_status},
	{OP_peer_damaged, op_peer_damaged},
};
const uint32_t n_agent_handlers = sizeof(agent_handlers) / sizeof(agent_handlers[0]);
