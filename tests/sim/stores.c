/* SPDX-License-Identifier: Apache-2.0 */
/* See stores.h. */
#include "tests/sim/stores.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/kv/kv.h"
#include "ossd/chunk/chunk_record.h"
#include "ossd/chunk/replay.h"
#include "tests/sim/peek.h"

#define SCAN_ROWS   256u
#define MDS_SESSION 1u

struct held {
	struct chunk_key key;
	uint32_t node;
	struct chunk_summary_info info;
};

struct stores {
	struct cluster *c;
	struct held *held;
	size_t n, space;
	uint32_t *nodes; /* bits of the members, for each chain */
	uint32_t n_chains;
};

/* The scan of one disk; those of several servers run concurrently. */
struct scan {
	struct stores *s;
	uint32_t node;
	enum row_kind kind;
	uint8_t next[KV_KEY_MAX + 1];
	size_t next_len;
};

struct stores *stores_create(struct cluster *c)
{
	struct stores *s = calloc(1, sizeof(*s));

	if (s != NULL)
		s->c = c;
	return s;
}

void stores_destroy(struct stores *s)
{
	if (s == NULL)
		return;
	free(s->held);
	free(s->nodes);
	free(s);
}

void stores_note_chains(struct stores *s)
{
	const struct mds *m = s->c->mds.mds;

	s->n_chains = peek_n_chains(m);
	s->nodes = calloc(s->n_chains + 1, sizeof(*s->nodes));
	for (uint32_t i = 0; s->nodes != NULL && i < s->n_chains; i++) {
		struct peek_chain p = peek_chain(m, i);

		for (uint32_t k = 0; k < p.n_members; k++)
			for (uint32_t n = 0; n < N_OSSD; n++)
				if (strcmp(p.addrs[k], s->c->ossd[n].addr) == 0)
					s->nodes[i] |= 1u << n;
	}
}

/* ---- one disk ---- */

/* Records a stored reply as if it were a chunk with an impossible name. Replies of clients are
 * removed with their sessions, by each member at a time of its own, and those of lanes with
 * the reply. Returns 1 if it is one of these. */
static int take_answer(const void *key, size_t key_len, const void *value, size_t len,
		       struct held *h)
{
	struct replay_key k;
	struct replay_row row;

	TRY(replay_key_decode(key, key_len, &k));
	TRY(replay_parse(value, len, &row));
	h->key = (struct chunk_key){k.chain, {k.session}, k.slot, UINT64_MAX};
	h->info = (struct chunk_summary_info){
		.version = row.seq, .sum = checksum64(row.reply.data, row.reply.len)};
	return k.session != MDS_SESSION || k.slot >= REPLAY_SLOTS;
}

static int take(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct scan *sc = arg;
	struct stores *s = sc->s;
	struct held *h;
	int rc = 0;

	if (s->n == s->space) {
		s->space = s->space != 0 ? s->space * 2 : 256;
		s->held = realloc(s->held, s->space * sizeof(*s->held));
		if (s->held == NULL)
			return -LE_NOMEM;
	}
	h = &s->held[s->n];
	h->node = sc->node;
	if (sc->kind == ROW_REPLAY) {
		rc = take_answer(key, key_len, value, len, h);
		TRY(rc);
	} else {
		TRY(chunk_key_decode(ROW_CHUNK, key, key_len, &h->key));
		TRY(chunk_record_summary(&h->key, value, len, &h->info));
	}
	s->n += rc == 0;
	/* The scan continues after this key. */
	memcpy(sc->next, key, key_len);
	sc->next[key_len] = 0;
	sc->next_len = key_len + 1;
	return 0;
}

static int scan_rows(struct stores *s, uint32_t node, struct kv *kv, enum row_kind kind)
{
	struct scan sc = {
		.s = s, .node = node, .kind = kind, .next = {(uint8_t)kind}, .next_len = 1};
	const uint8_t end = (uint8_t)kind + 1;
	bool more = true;
	int rc;

	for (rc = 0; rc == 0 && more;) {
		uint8_t from[KV_KEY_MAX + 1];
		struct kv_range range = {from, sc.next_len, &end, 1, SCAN_ROWS};

		memcpy(from, sc.next, sc.next_len);
		rc = kv_scan(kv, NULL, &range, take, &sc, &more);
	}
	return rc;
}

int stores_read(struct stores *s, uint32_t node, struct env *env)
{
	struct kv_options o = {.create = false};
	char path[64];
	struct kv *kv;
	int rc;

	snprintf(path, sizeof(path), "%s/index", s->c->ossd[node].dir);
	TRY(kv_open(env, path, &o, &kv));
	rc = scan_rows(s, node, kv, ROW_CHUNK);
	if (rc == 0)
		rc = scan_rows(s, node, kv, ROW_REPLAY);
	kv_close(kv);
	return rc;
}

/* ---- all of them ---- */

static int compare_held(const void *a, const void *b)
{
	const struct held *x = a, *y = b;
	const struct chunk_key *p = &x->key, *q = &y->key;

	if (p->chain != q->chain)
		return p->chain < q->chain ? -1 : 1;
	if (p->ino.v != q->ino.v)
		return p->ino.v < q->ino.v ? -1 : 1;
	if (p->gen != q->gen)
		return p->gen < q->gen ? -1 : 1;
	if (p->idx != q->idx)
		return p->idx < q->idx ? -1 : 1;
	return x->node < y->node ? -1 : x->node > y->node;
}

static bool same_chunk(const struct held *x, const struct held *y)
{
	return x->key.chain == y->key.chain && x->key.ino.v == y->key.ino.v &&
	       x->key.gen == y->key.gen && x->key.idx == y->key.idx;
}

static bool equal(const struct held *x, const struct held *y)
{
	return x->info.version == y->info.version && x->info.sum == y->info.sum &&
	       x->info.end == y->info.end && x->info.mtime_ns == y->info.mtime_ns;
}

static void differ(struct stores *s, const struct held *h, size_t n, uint32_t members)
{
	char text[300];
	size_t len = 0;

	for (size_t i = 0; i < n && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					" %s: version %llu end %u mtime %lld sum %016llx;",
					s->c->ossd[h[i].node].name,
					(unsigned long long)h[i].info.version, h[i].info.end,
					(long long)h[i].info.mtime_ns,
					(unsigned long long)h[i].info.sum);
	cluster_fail(s->c, "%s %u/%llu/%u/%llu differs between members (bits %x):%s",
		     h->key.idx == UINT64_MAX ? "answer" : "chunk",
		     h->key.chain, (unsigned long long)h->key.ino.v, h->key.gen,
		     (unsigned long long)h->key.idx, members, text);
}

void stores_compare(struct stores *s)
{
	if (s->n > 0)
		qsort(s->held, s->n, sizeof(*s->held), compare_held);
	for (size_t i = 0, k; i < s->n && !s->c->failed; i = k) {
		const struct held *h = &s->held[i];
		uint32_t members = h->key.chain - 1 < s->n_chains ? s->nodes[h->key.chain - 1] : 0;
		uint32_t have = 0;
		const struct held *first = NULL;
		bool same = true;

		for (k = i; k < s->n && same_chunk(h, &s->held[k]); k++) {
			/* A node that is no member deletes the chunk in the background. */
			if ((members & 1u << s->held[k].node) == 0)
				continue;
			have |= 1u << s->held[k].node;
			if (first == NULL)
				first = &s->held[k];
			same = same && equal(first, &s->held[k]);
		}
		if (!same || (have != 0 && have != members))
			differ(s, h, k - i, members);
	}
}
