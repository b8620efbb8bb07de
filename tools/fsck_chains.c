/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/fsck_chains.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/loop.h"

#define LIST_MS     10000u
#define ROWS_IN_ALL 262144u /* of all lists together */
#define ROWS_MIN    16u
#define ROWS_MAX    512u
#define LOOKS       10u /* how often a difference is read again before it is reported */
#define LOOK_US     200000u
#define SCRUB_US    500000u
#define SUSPECTS    1024u

struct target_link {
	const struct target_view *v;
	struct rpc_client *rpc; /* NULL: the target is not up */
};

/* The list of one member, a part at a time. */
struct member {
	struct target_link *t;
	struct chunk_summary *rows;
	uint32_t n, at;
	struct chunk_id next;
	bool more;
};

struct stream {
	uint32_t id, epoch, n_members;
	struct member m[CHAIN_MEMBERS_MAX];
	struct chunk_id cur; /* the next chunk, if not ended */
	bool ended;
};

/* A chunk on each member. */
struct view {
	uint64_t version[CHAIN_MEMBERS_MAX], sum[CHAIN_MEMBERS_MAX];
	bool there[CHAIN_MEMBERS_MAX];
};

/* A chunk with copies that differed when they were listed. */
struct suspect {
	struct stream *s;
	struct chunk_id id;
	struct view v;
	bool same; /* the chain has not changed since; then: */
	uint32_t head;
};

struct fsck_chains {
	struct fsck *f;
	struct target_link *targets;
	struct stream *streams;
	uint32_t n_streams, cap;
	struct stream **heap; /* by cur.ino, then chain */
	uint32_t n_heap;
	uint32_t rows_max;
	struct chunk_summary *memory;
	uint32_t n_suspects;
	struct suspect suspects[SUSPECTS];
};

static int compare_id(const struct chunk_id *a, const struct chunk_id *b)
{
	if (a->ino.v != b->ino.v)
		return a->ino.v < b->ino.v ? -1 : 1;
	if (a->gen != b->gen)
		return a->gen < b->gen ? -1 : 1;
	return a->idx < b->idx ? -1 : a->idx > b->idx;
}

/* ---- the map ---- */

/* Calls fn for each chain of the map. */
static int each_chain(struct fsck *f,
		      int (*fn)(void *arg, const struct chain_info *info,
				const struct chain_member *m, uint32_t n_sync),
		      void *arg)
{
	struct mds_map_get_req req = {0};
	int rc = 0;

	do {
		struct mds_map_get_rep rep = {0};
		struct rpc_call call;
		struct wire_r r;

		rc = fsck_call(f, OP_mds_map_get, &req, &rep, &call);
		wire_r_init(&r, rep.chains.data, rep.chains.len);
		while (rc == 0 && !wire_r_end(&r)) {
			struct chain_member m[CHAIN_MEMBERS_MAX];
			struct chain_info info;
			int n, n_sync = 0;

			wire_get_chain_info(&r, &info);
			n = r.status < 0 ? r.status : chain_members_get(&info, m);
			while (n_sync < n && m[n_sync].state == MEMBER_SYNC)
				n_sync++;
			rc = n < 0 ? n : fn(arg, &info, m, (uint32_t)n_sync);
		}
		if (rc == 0 && rep.next != 0 && rep.next <= req.from)
			rc = -LE_BAD_MESSAGE;
		req.from = rep.next;
		rpc_call_fini(&call);
	} while (rc == 0 && req.from != 0);
	return rc;
}

static int add_stream(void *arg, const struct chain_info *info, const struct chain_member *m,
		      uint32_t n_sync)
{
	struct fsck_chains *cs = arg;
	struct stream *s;

	if (cs->n_streams == cs->cap) {
		uint32_t cap = cs->cap ? cs->cap * 2 : 64;

		s = realloc(cs->streams, cap * sizeof(*s));
		if (!s)
			return -LE_NOMEM;
		cs->streams = s;
		cs->cap = cap;
	}
	s = &cs->streams[cs->n_streams++];
	*s = (struct stream){.id = info->id, .epoch = info->epoch};
	for (uint32_t i = 0; i < n_sync; i++) {
		struct target_link *t = NULL;

		for (uint32_t k = 0; k < cs->f->c->n_targets; k++)
			if (cs->targets[k].v->id == m[i].target && cs->targets[k].rpc)
				t = &cs->targets[k];
		if (t)
			s->m[s->n_members++] = (struct member){.t = t, .more = true};
		else
			cs->f->unread++;
	}
	return 0;
}

/* ---- lists of members ---- */

static int list(const struct stream *s, const struct target_link *t, const struct chunk_id *from,
		uint32_t max, struct member *ret)
{
	struct oss_list_req req = {*from, max};
	struct oss_list_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_list,
				.req = &req,
				.rep = &rep,
				.target = t->v->id,
				.chain = s->id,
				.epoch = s->epoch,
				.deadline_us = loop_deadline_ms(LIST_MS)};
	int rc = rpc_call(t->rpc, &call);
	struct wire_r r;

	wire_r_init(&r, rep.chunks.data, rep.chunks.len);
	ret->n = ret->at = 0;
	while (rc == 0 && ret->n < max && !wire_r_end(&r)) {
		wire_get_chunk_summary(&r, &ret->rows[ret->n]);
		rc = r.status;
		if (rc == 0 &&
		    compare_id(&ret->rows[ret->n].chunk,
			       ret->n ? &ret->rows[ret->n - 1].chunk : from) < (int)(ret->n > 0))
			rc = -LE_BAD_MESSAGE;
		ret->n++;
	}
	ret->more = rep.more;
	rpc_call_fini(&call);
	return rc;
}

/* Excludes a member that cannot be read from here on, and notes that; it is no error. */
static void fill(struct fsck_chains *cs, struct stream *s, uint32_t i)
{
	struct member *m = &s->m[i];
	int rc = 0;

	if (m->at < m->n || !m->more)
		return;
	rc = list(s, m->t, &m->next, cs->rows_max, m);
	if (rc == 0) {
		if (m->n > 0) {
			m->next = m->rows[m->n - 1].chunk;
			m->next.idx++;
		}
		return;
	}
	fsck_note(cs->f, "chain %u on target %u: %s: this copy is not checked", s->id, m->t->v->id,
		  status_text(rc));
	cs->f->unread++;
	s->m[i] = s->m[--s->n_members];
	if (i < s->n_members)
		fill(cs, s, i);
}

static void set_current(struct fsck_chains *cs, struct stream *s)
{
	s->ended = true;
	for (uint32_t i = 0; i < s->n_members; i++)
		fill(cs, s, i);
	for (uint32_t i = 0; i < s->n_members; i++) {
		const struct member *m = &s->m[i];

		if (m->at < m->n && (s->ended || compare_id(&m->rows[m->at].chunk, &s->cur) < 0)) {
			s->cur = m->rows[m->at].chunk;
			s->ended = false;
		}
	}
}

/* ---- differences ---- */

static bool views_agree(const struct stream *s, const struct view *v)
{
	for (uint32_t i = 1; i < s->n_members; i++)
		if (v->there[i] != v->there[0] ||
		    (v->there[i] && (v->version[i] != v->version[0] || v->sum[i] != v->sum[0])))
			return false;
	return s->n_members == 0 || !v->there[0] || v->version[0] != 0;
}

static int look(struct stream *s, const struct chunk_id *id, struct view *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < s->n_members; i++) {
		struct chunk_summary row = {0};
		struct member one = {.rows = &row};

		TRY(list(s, s->m[i].t, id, 1, &one));
		if (one.n == 0 || compare_id(&row.chunk, id) != 0)
			continue;
		ret->there[i] = true;
		ret->version[i] = row.version;
		ret->sum[i] = row.sum;
	}
	return 0;
}

/* Reads the suspects again. Members get a write one after the other, so copies differ only if the
 * difference stays as it is while the chain does. Each round reads all suspects, so that many take
 * no longer than one. */
static int look_again(struct fsck_chains *cs, bool first)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cs->n_suspects; i++) {
		struct suspect *x = &cs->suspects[i];
		struct view now;

		/* A silent target takes long: after a signal the command must not wait for all. */
		TRY(fsck_going(cs->f, "differences", i, cs->n_suspects));
		/* What cannot be read is read in the next round, or noted there. */
		if (look(x->s, &x->id, &now) < 0 || views_agree(x->s, &now) ||
		    (!first && memcmp(&x->v, &now, sizeof(now)) != 0))
			continue;
		x->v = now;
		cs->suspects[n++] = *x;
	}
	cs->n_suspects = n;
	return 0;
}

static int see_chain(void *arg, const struct chain_info *info, const struct chain_member *m,
		     uint32_t n_sync)
{
	struct fsck_chains *cs = arg;

	for (uint32_t i = 0; i < cs->n_suspects; i++) {
		struct suspect *x = &cs->suspects[i];

		if (info->id != x->s->id)
			continue;
		x->same = info->epoch == x->s->epoch && n_sync > 0;
		x->head = m[0].target;
	}
	return 0;
}

static int scrub_call(struct fsck_chains *cs, uint32_t target, enum scrub_what what,
		      struct oss_scrub_rep *ret)
{
	struct oss_scrub_req req = {what};

	for (uint32_t k = 0; k < cs->f->c->n_targets; k++) {
		struct rpc_call call = {.op = OP_oss_scrub,
					.req = &req,
					.rep = ret,
					.target = target,
					.deadline_us = loop_deadline_ms(LIST_MS)};
		int rc;

		if (cs->targets[k].v->id != target || !cs->targets[k].rpc)
			continue;
		rc = rpc_call(cs->targets[k].rpc, &call);
		rpc_call_fini(&call);
		return rc;
	}
	return -LE_TARGET_DOWN;
}

/* Runs a scrub at the head, which makes the other members equal to it. */
static int scrub(struct fsck_chains *cs, uint32_t target)
{
	struct oss_scrub_rep rep = {0};

	TRY(scrub_call(cs, target, SCRUB_START, &rep));
	do {
		TRY(fiber_sleep_us(SCRUB_US));
		TRY(scrub_call(cs, target, SCRUB_STATUS, &rep));
		TRY(fsck_going(cs->f, "scrub", rep.bytes, rep.used));
	} while (rep.running);
	cs->f->again = true;
	return 0;
}

/* True if no member can read its copy: the data are lost. */
static bool is_lost(const struct stream *s, const struct view *v)
{
	for (uint32_t i = 0; i < s->n_members; i++)
		if (!v->there[i] || v->version[i] != 0)
			return false;
	return true;
}

static int report(struct fsck_chains *cs, const struct suspect *x)
{
	const struct chunk_id *id = &x->id;

	if (is_lost(x->s, &x->v))
		return fsck_found(cs->f, FSCK_missing, NULL,
				  "chain %u, inode %" PRIu64 " generation %u chunk %" PRIu64
				  ": lost in all %u copies",
				  x->s->id, id->ino.v, id->gen, id->idx, x->s->n_members);
	return fsck_found(cs->f, FSCK_copies, NULL,
			  "chain %u, inode %" PRIu64 " generation %u chunk %" PRIu64
			  ": %u copies, which differ or are damaged",
			  x->s->id, id->ino.v, id->gen, id->idx, x->s->n_members);
}

/* Scrubs once each target that is head of a chain with copies that differ. */
static int scrub_heads(struct fsck_chains *cs)
{
	for (uint32_t k = 0; k < cs->f->c->n_targets; k++) {
		uint32_t id = cs->targets[k].v->id, i = 0;

		while (i < cs->n_suspects &&
		       (!cs->suspects[i].same || cs->suspects[i].head != id ||
			is_lost(cs->suspects[i].s, &cs->suspects[i].v)))
			i++;
		if (i < cs->n_suspects)
			TRY(scrub(cs, id));
	}
	return 0;
}

static int check_suspects(struct fsck_chains *cs)
{
	for (uint32_t i = 0; i < LOOKS && cs->n_suspects > 0; i++) {
		TRY(look_again(cs, i == 0));
		TRY(fiber_sleep_us(LOOK_US));
	}
	if (cs->n_suspects == 0)
		return 0;
	TRY(each_chain(cs->f, see_chain, cs));
	for (uint32_t i = 0; i < cs->n_suspects; i++)
		if (cs->suspects[i].same)
			TRY(report(cs, &cs->suspects[i]));
	if (cs->f->repair & 1u << FSCK_copies)
		TRY(scrub_heads(cs));
	cs->n_suspects = 0;
	return 0;
}

static int differs(struct fsck_chains *cs, struct stream *s, const struct chunk_id *id)
{
	cs->suspects[cs->n_suspects++] = (struct suspect){.s = s, .id = *id};
	return cs->n_suspects == SUSPECTS ? check_suspects(cs) : 0;
}

/* ---- the streams in order ---- */

static bool before(const struct stream *a, const struct stream *b)
{
	return a->cur.ino.v != b->cur.ino.v ? a->cur.ino.v < b->cur.ino.v : a->id < b->id;
}

static void sift_down(struct fsck_chains *cs, uint32_t at)
{
	for (;;) {
		uint32_t least = at;

		for (uint32_t k = 2 * at + 1; k <= 2 * at + 2 && k < cs->n_heap; k++)
			if (before(cs->heap[k], cs->heap[least]))
				least = k;
		if (least == at)
			return;
		struct stream *t = cs->heap[at];
		cs->heap[at] = cs->heap[least];
		cs->heap[least] = t;
		at = least;
	}
}

/* Takes the current chunk from the lists of the stream's members. */
static int take(struct fsck_chains *cs, struct stream *s, struct chunk_summary *ret)
{
	struct chunk_id id = s->cur;
	struct view v = {0};

	*ret = (struct chunk_summary){.chunk = id};
	for (uint32_t i = s->n_members; i-- > 0;) {
		struct member *m = &s->m[i];

		if (m->at == m->n || compare_id(&m->rows[m->at].chunk, &id) != 0)
			continue;
		if (m->rows[m->at].version != 0)
			*ret = m->rows[m->at];
		v.there[i] = true;
		v.version[i] = m->rows[m->at].version;
		v.sum[i] = m->rows[m->at++].sum;
	}
	return views_agree(s, &v) ? 0 : differs(cs, s, &id);
}

int fsck_chains_next(struct fsck_chains *cs, struct fsck_chunk *ret_chunk)
{
	struct stream *s;

	if (cs->n_heap == 0)
		return check_suspects(cs);
	s = cs->heap[0];
	ret_chunk->chain = s->id;
	TRY(take(cs, s, &ret_chunk->s));
	set_current(cs, s);
	if (s->ended)
		cs->heap[0] = cs->heap[--cs->n_heap];
	sift_down(cs, 0);
	cs->f->n_chunks++;
	return 1;
}

/* ---- open, close ---- */

static int start_streams(struct fsck_chains *cs)
{
	uint32_t n = 0, at = 0;

	for (uint32_t i = 0; i < cs->n_streams; i++)
		n += cs->streams[i].n_members;
	cs->rows_max = n ? ROWS_IN_ALL / n : ROWS_MAX;
	cs->rows_max = cs->rows_max < ROWS_MIN   ? ROWS_MIN
		       : cs->rows_max > ROWS_MAX ? ROWS_MAX
						 : cs->rows_max;
	cs->memory = calloc((size_t)n * cs->rows_max + 1, sizeof(*cs->memory));
	cs->heap = calloc(cs->n_streams + 1, sizeof(struct stream *));
	if (!cs->memory || !cs->heap)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < cs->n_streams; i++) {
		struct stream *s = &cs->streams[i];

		for (uint32_t k = 0; k < s->n_members; k++)
			s->m[k].rows = &cs->memory[(size_t)at++ * cs->rows_max];
		set_current(cs, s);
		if (!s->ended)
			cs->heap[cs->n_heap++] = s;
	}
	for (uint32_t i = cs->n_heap / 2 + 1; i-- > 0;)
		sift_down(cs, i);
	return 0;
}

int fsck_chains_open(struct fsck *f, struct fsck_chains **ret_chains)
{
	struct fsck_chains *cs = calloc(1, sizeof(*cs));
	int rc = 0;

	if (!cs)
		return -LE_NOMEM;
	cs->f = f;
	cs->targets = calloc(f->c->n_targets + 1, sizeof(*cs->targets));
	rc = cs->targets ? 0 : -LE_NOMEM;
	for (uint32_t i = 0; i < f->c->n_targets && rc == 0; i++) {
		const struct target_view *v = &f->c->targets[i];

		cs->targets[i].v = v;
		if (v->state == TARGET_UP)
			rc = cluster_target_open(f->c, v, &cs->targets[i].rpc);
	}
	f->unread = 0;
	if (rc == 0)
		rc = each_chain(f, add_stream, cs);
	if (rc == 0)
		rc = start_streams(cs);
	if (rc < 0)
		fsck_chains_close(cs);
	else
		*ret_chains = cs;
	return rc;
}

void fsck_chains_close(struct fsck_chains *cs)
{
	for (uint32_t i = 0; cs->targets && i < cs->f->c->n_targets; i++)
		if (cs->targets[i].rpc)
			rpc_client_destroy(cs->targets[i].rpc);
	free(cs->targets);
	free(cs->streams);
	free(cs->heap);
	free(cs->memory);
	free(cs);
}
