/* See stores.h. */
#include "tests/sim/stores.h"

#include <stdlib.h>
#include <string.h>

#include "common/kv/kv.h"
#include "ossd/chunk/chunk_record.h"
#include "tests/sim/peek.h"

#define SCAN_ROWS 256u

struct held {
	struct chunk_key key;
	uint32_t node;
	struct chunk_summary_info info;
};

struct stores {
	struct cluster *c;
	struct held *held;
	size_t n, room;
	uint32_t *nodes; /* by chain: bits of the members */
	uint32_t n_chains;
};

/* Of one disk; those of several servers run at the same time. */
struct scan {
	struct stores *s;
	uint32_t node;
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

static int take(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct scan *sc = arg;
	struct stores *s = sc->s;
	struct held *h;

	if (s->n == s->room) {
		s->room = s->room != 0 ? s->room * 2 : 256;
		s->held = realloc(s->held, s->room * sizeof(*s->held));
		if (s->held == NULL)
			return -LE_NOMEM;
	}
	h = &s->held[s->n];
	h->node = sc->node;
	TRY(chunk_row_decode(ROW_CHUNK, key, key_len, &h->key));
	TRY(chunk_record_summary(&h->key, value, len, &h->info));
	s->n++;
	/* The scan goes on behind this key. */
	memcpy(sc->next, key, key_len);
	sc->next[key_len] = 0;
	sc->next_len = key_len + 1;
	return 0;
}

int stores_read(struct stores *s, uint32_t node, struct env *env)
{
	struct kv_options o = {.create = false};
	struct scan sc = {.s = s, .node = node, .next = {ROW_CHUNK}, .next_len = 1};
	const uint8_t end = ROW_CHUNK + 1;
	char path[64];
	struct kv *kv;
	bool more = true;
	int rc;

	snprintf(path, sizeof(path), "%s/index", s->c->ossd[node].dir);
	TRY(kv_open(env, path, &o, &kv));
	for (rc = 0; rc == 0 && more;) {
		uint8_t from[KV_KEY_MAX + 1];
		struct kv_range range = {from, sc.next_len, &end, 1, SCAN_ROWS};

		memcpy(from, sc.next, sc.next_len);
		rc = kv_scan(kv, NULL, &range, take, &sc, &more);
	}
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
	cluster_fail(s->c, "chunk %u/%llu/%u/%llu differs between members (bits %x):%s",
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
			/* Of one that is no member any more it is being deleted. */
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
