/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of files from other nodes' copies, in simulated time: delivered bytes are right even if
 * nodes send wrong ones, no node delays a read for long, and a bad node gets no further
 * requests. */
#include "client/loader/source/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/include/leat/leat_loader.h"
#include "client/stage/fetch/fetch.h"
#include "client/stage/fetch/peers.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"

#define BLOCK    16384u
#define FILES    3u
#define NODES    4u
#define LIMIT_US 600000000u

enum nature {
	GOOD,
	LYING,      /* one wrong bit */
	SHORT,      /* fewer bytes */
	SILENT,     /* no reply in time */
	GONE,       /* no connection is possible */
	BREAKING,   /* a connection that breaks */
	WITHOUT,    /* its copy was evicted */
	ABSENT,     /* has no address */
	UNFINISHED, /* is still staging */
	NATURES
};

struct world {
	struct sim *sim;
	uint64_t sizes[FILES];
	uint8_t *data[FILES];
	enum nature nodes[NODES];
	uint32_t asked[NODES], bytes[NODES], left;
	bool direct; /* received into the caller's memory */
	uint8_t *lo, *hi;
	void (*test)(struct world *w);
	bool done;
};

/* ---- the net ---- */

static const struct manifest_file *file_of_chunk(const struct manifest *m, uint64_t chunk,
						 uint32_t *ret_file)
{
	*ret_file = manifest_file_of_chunk(m, chunk);
	return &m->files[*ret_file];
}

static struct manifest *the_manifest; /* of the world that is running */

static int net_ask(void *net, struct swarm_peer *p, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *ret_answer)
{
	struct world *w = net;
	uint32_t who = (uint32_t)(p->addr[4] - '0'), file;
	const struct manifest_file *f = file_of_chunk(the_manifest, q->chunk, &file);
	uint64_t at = (q->chunk - f->first_chunk) * MANIFEST_CHUNK + q->off;

	assert_true(q->quick_ms > 0 && !q->demand && q->len > 0 && q->len <= s->size);
	assert_true(q->off % BLOCK == 0 && at + q->len <= f->size);
	assert_true(q->len % BLOCK == 0 || at + q->len == f->size);
	w->asked[who]++;
	p->conn = w;
	w->direct |= s->data >= w->lo && s->data < w->hi;
	if (w->nodes[who] == GONE)
		return -LE_AGAIN;
	assert_int_equal(fiber_sleep_us(w->nodes[who] == SILENT
						? q->quick_ms * 1000ULL
						: 200 + sim_random_below(w->sim, 2000)),
			 0);
	switch (w->nodes[who]) {
	case SILENT:
		return -LE_TIMEDOUT;
	case BREAKING:
		return -LE_DISCONNECTED;
	case WITHOUT:
		return -LE_NOENT;
	default:
		break;
	}
	memcpy(s->data, w->data[file] + at, q->len);
	ret_answer->len = q->len;
	if (w->nodes[who] == LYING)
		s->data[sim_random_below(w->sim, q->len)] ^= 1;
	if (w->nodes[who] == SHORT)
		ret_answer->len -= 1;
	w->bytes[who] += q->len;
	return 0;
}

static void net_leave(void *net, struct swarm_peer *p)
{
	struct world *w = net;
	w->left++;
	p->conn = NULL;
}

static int net_look(void *net, const char *id,
		    int (*each)(void *arg, const char *addr, size_t len, bool ready), void *arg)
{
	struct world *w = net;
	assert_string_equal(id, the_manifest->id);
	assert_int_equal(fiber_sleep_us(1000), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		char addr[] = "node0";
		addr[4] = (char)('0' + i);
		if (w->nodes[i] != ABSENT)
			TRY(each(arg, addr, strlen(addr), w->nodes[i] != UNFINISHED));
	}
	return 0;
}

static const struct swarm_net_ops net_ops = {net_ask, net_leave, net_look, NULL};

/* ---- a data set ---- */

static uint8_t *make_bytes(uint32_t file, uint64_t size)
{
	uint64_t *words = malloc(size + 8);
	for (uint64_t i = 0; i <= size / 8; i++)
		words[i] = hash_u64_2(file + 1, i);
	return (uint8_t *)words;
}

static struct manifest *make_manifest(struct world *w)
{
	struct manifest *m;
	assert_int_equal(manifest_create(&m), 0);
	for (uint32_t f = 0; f < FILES; f++) {
		char path[] = "file0";
		struct vol_stat st = {.size = w->sizes[f], .mode = 0100644};
		path[4] = (char)('0' + f);
		w->data[f] = make_bytes(f, w->sizes[f]);
		assert_int_equal(manifest_add(m, path, &st, BLOCK), 0);
		for (uint64_t at = 0, k = m->files[f].first_sum; at < w->sizes[f]; at += BLOCK, k++)
			m->sums[k] =
				checksum64(w->data[f] + at,
					   w->sizes[f] - at < BLOCK ? w->sizes[f] - at : BLOCK);
	}
	manifest_finish(m);
	the_manifest = m;
	return m;
}

static struct peer_source *open_peers(struct world *w)
{
	struct peer_source *p;
	struct peer_options o = {.ops = &net_ops, .net = w, .m = make_manifest(w)};
	assert_int_equal(peer_create(&o, &p), 0);
	return p;
}

static void close_peers(struct peer_source *p)
{
	peer_destroy(p);
	manifest_destroy(the_manifest);
}

static bool read_at(struct world *w, struct peer_source *p, const struct peer_range *r)
{
	uint8_t *to = malloc(r->len + 16);
	memset(to, 0xa5, r->len + 16);
	w->lo = to + 8;
	w->hi = w->lo + r->len;
	bool got = peer_read(p, r, to + 8);
	const uint8_t *want = w->data[r->file] + r->off;
	if (got)
		assert_memory_equal(to + 8, want, r->len);
	for (uint32_t i = 0; i < 8; i++)
		assert_true(to[i] == 0xa5 && to[8 + r->len + i] == 0xa5);
	free(to);
	return got;
}

static struct peer_range any_range(struct world *w)
{
	struct peer_range r = {.file = (uint32_t)sim_random_below(w->sim, FILES)};
	uint64_t size = w->sizes[r.file];
	r.off = sim_random_below(w->sim, size);
	uint64_t most = size - r.off < (2u << 20) ? size - r.off : 2u << 20;
	r.len = 1 + sim_random_below(w->sim, most);
	return r;
}

static struct leat_loader_metrics told(struct peer_source *p)
{
	struct leat_loader_metrics m = {0};
	peer_tell(p, &m);
	return m;
}

/* ---- tests ---- */

static void all_from_good_ones(struct world *w)
{
	struct peer_source *p = open_peers(w);
	assert_int_equal(told(p).peers, NODES);
	for (uint32_t i = 0; i < 100; i++) {
		struct peer_range r = any_range(w);
		assert_true(read_at(w, p, &r));
	}
	/* Each node serves its share. */
	for (uint32_t i = 0; i < NODES; i++)
		assert_true(w->asked[i] > 0);
	assert_int_equal(told(p).peers_dropped, 0);
	close_peers(p);
	assert_int_equal(w->left, NODES);
}

static void whole_blocks_land_in_place(struct world *w)
{
	struct peer_source *p = open_peers(w);
	struct peer_range r = {.file = 1, .off = BLOCK, .len = 2 * MANIFEST_CHUNK};
	assert_true(read_at(w, p, &r));
	assert_true(w->direct);
	assert_int_equal(w->bytes[0] + w->bytes[1] + w->bytes[2] + w->bytes[3], r.len);
	w->direct = false;
	r = (struct peer_range){1, 5, 100};
	assert_true(read_at(w, p, &r));
	assert_false(w->direct);
	close_peers(p);
}

static void what_is_worth_it(struct world *w)
{
	struct peer_source *p = open_peers(w);
	uint64_t end = w->sizes[0];
	assert_false(peer_may_serve(p, &(struct peer_range){0, 100, 4096}));
	assert_true(peer_may_serve(p, &(struct peer_range){0, 0, BLOCK / 2}));
	assert_false(peer_may_serve(p, &(struct peer_range){0, BLOCK - 100, BLOCK / 2}));
	assert_true(peer_may_serve(p, &(struct peer_range){0, 100, 115000}));
	/* The last block of the file is short. */
	assert_true(peer_may_serve(p, &(struct peer_range){0, end - end % BLOCK, end % BLOCK}));
	close_peers(p);
}

static void nobody_is_there(struct world *w)
{
	for (uint32_t i = 0; i < NODES; i++)
		w->nodes[i] = i % 2 ? ABSENT : UNFINISHED;
	struct peer_source *p = open_peers(w);
	struct peer_range r = {0, 0, BLOCK};
	assert_false(peer_may_serve(p, &r));
	assert_false(read_at(w, p, &r));
	for (uint32_t i = 0; i < NODES; i++)
		assert_int_equal(w->asked[i], 0);
	/* One node comes up. */
	w->nodes[2] = GOOD;
	assert_int_equal(fiber_sleep_us(6000000), 0);
	assert_true(peer_may_serve(p, &r));
	assert_true(read_at(w, p, &r));
	/* It disappears, and its connection is closed. */
	w->nodes[2] = ABSENT;
	assert_int_equal(fiber_sleep_us(6000000), 0);
	assert_false(peer_may_serve(p, &r));
	assert_int_equal(w->left, 1);
	close_peers(p);
}

/* One node of each bad kind, beside good ones. */
static void one_is_no_good(struct world *w, enum nature what, uint32_t asked_max, bool lied)
{
	w->nodes[2] = what;
	struct peer_source *p = open_peers(w);
	uint64_t longest_us = 0;
	uint32_t given = 0;
	for (uint32_t i = 0; i < 100; i++) {
		struct peer_range r = any_range(w);
		uint64_t begin_us = loop_now_us();
		given += read_at(w, p, &r);
		uint64_t us = loop_now_us() - begin_us;
		longest_us = us > longest_us ? us : longest_us;
	}
	/* The other nodes serve what the bad one does not. */
	assert_int_equal(given, 100);
	assert_true(w->asked[2] > 0 && w->asked[2] <= asked_max);
	assert_true(longest_us < 2500000);
	assert_int_equal(told(p).peers_lied, lied);
	assert_true(what == GONE || what == WITHOUT || told(p).peers_dropped > 0);
	if (lied) {
		/* For ever. */
		w->nodes[2] = GOOD;
		w->asked[2] = 0;
		assert_int_equal(fiber_sleep_us(100000000), 0);
		for (uint32_t i = 0; i < 50; i++) {
			struct peer_range r = any_range(w);
			assert_true(read_at(w, p, &r));
		}
		assert_int_equal(w->asked[2], 0);
	}
	close_peers(p);
}

static void lying(struct world *w)
{
	/* Requests in flight when the node was detected count, too. */
	one_is_no_good(w, LYING, 8, true);
}

static void short_answers(struct world *w)
{
	one_is_no_good(w, SHORT, 8, true);
}

static void silent(struct world *w)
{
	one_is_no_good(w, SILENT, 12, false);
}

static void gone(struct world *w)
{
	one_is_no_good(w, GONE, 1000, false);
}

static void breaking(struct world *w)
{
	one_is_no_good(w, BREAKING, 12, false);
}

static void evicted(struct world *w)
{
	one_is_no_good(w, WITHOUT, 20, false);
}

/* Any node may change its nature at any time. */
static void natures_at_random(struct world *w)
{
	struct peer_source *p = open_peers(w);
	uint32_t given = 0;
	for (uint32_t i = 0; i < 400; i++) {
		struct peer_range r = any_range(w);
		if (sim_chance_ppm(w->sim, 100000)) {
			uint32_t who = (uint32_t)sim_random_below(w->sim, NODES);
			w->nodes[who] = (enum nature)sim_random_below(w->sim, NATURES);
			/* A node that lies once is excluded: only one may lie. */
			if (who > 0 && (w->nodes[who] == LYING || w->nodes[who] == SHORT))
				w->nodes[who] = GOOD;
		}
		given += read_at(w, p, &r);
		if (i % 40 == 0)
			assert_int_equal(fiber_sleep_us(sim_random_below(w->sim, 10000000)), 0);
	}
	assert_true(given > 50);
	close_peers(p);
}

/* ---- running them ---- */

static void begin(struct loop *loop, void *arg)
{
	struct world *w = arg;
	(void)loop;
	w->test(w);
	w->done = true;
}

static bool is_done(void *arg)
{
	return ((struct world *)arg)->done;
}

static void run(uint64_t seed, void (*test)(struct world *w))
{
	struct sim_options so = {0};
	struct world *w = calloc(1, sizeof(*w));
	*w = (struct world){.sizes = {(16u << 20) + 12345, 8u << 20, 1}, .test = test};
	assert_int_equal(sim_create(seed, &so, &w->sim), 0);
	struct sim_proc *proc = sim_proc_create(w->sim, "loader");
	assert_non_null(proc);
	assert_int_equal(sim_proc_start(proc, begin, w), 0);
	int rc = sim_run(w->sim, is_done, w, sim_now_us(w->sim) + LIMIT_US);
	if (rc < 0 || !w->done)
		fail_msg("seed %llu: %s", (unsigned long long)seed, status_text(rc));
	sim_destroy(w->sim);
	for (uint32_t f = 0; f < FILES; f++)
		free(w->data[f]);
	free(w);
}

#define TEST(name)                                                                                 \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		(void)state;                                                                       \
		for (uint64_t seed = 1; seed <= 3; seed++)                                         \
			run(seed, name);                                                           \
	}
TEST(all_from_good_ones)
TEST(whole_blocks_land_in_place)
TEST(what_is_worth_it)
TEST(nobody_is_there)
TEST(lying)
TEST(short_answers)
TEST(silent)
TEST(gone)
TEST(breaking)
TEST(evicted)

static void test_natures_at_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++)
		run(seed, natures_at_random);
}

int main(void)
{
	log_set_level(LOG_ERROR); /* each exclusion of a node is logged */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_from_good_ones),
		cmocka_unit_test(test_whole_blocks_land_in_place),
		cmocka_unit_test(test_what_is_worth_it),
		cmocka_unit_test(test_nobody_is_there),
		cmocka_unit_test(test_lying),
		cmocka_unit_test(test_short_answers),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_breaking),
		cmocka_unit_test(test_evicted),
		cmocka_unit_test(test_natures_at_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
