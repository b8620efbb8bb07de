/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk data of every size up to the largest, at odd offsets over many slots, both ways. */
#include <sys/mman.h>

#include "tests/unit/common/rpc/suite.h"

#define BIG_SLOT ((1u << 20) + (64u << 10))
#define BIG_MAX  (64u << 20)
#define BULK_MS  60000

static void both_ways(struct bed *b, struct rpc_client *c, uint32_t len, uint32_t seed)
{
	static struct slot_vec vec[RPC_BULK_VECS_MAX];
	uint32_t n = suite_slots_odd(b->client_pool, len, seed, vec, RPC_BULK_VECS_MAX);

	suite_fill(vec, n, seed);
	assert_int_equal(suite_write(c, len, seed, vec, n, BULK_MS), 0);
	assert_int_equal(suite_read(c, len, seed | SUITE_ODD, vec, n, BULK_MS), 0);
	suite_slots_put(vec, n);
}

static void with_big_slots(struct bed *b, void (*fn)(struct bed *b, struct rpc_client *c))
{
	uint32_t slot_size = b->slot_size;
	struct slot_pool *usual = b->client_pool;

	b->slot_size = BIG_SLOT;
	/* Exactly as many slots as a frame may have pieces. */
	uint32_t n_slots = b->n_slots;
	b->n_slots = RPC_BULK_VECS_MAX;
	b->client_pool = suite_pool(b, RPC_BULK_VECS_MAX, POOL_REMOTE);
	struct rpc_server_options o = suite_server_options(b);
	o.bulk_max = BIG_MAX;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	fn(b, c);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
	slot_pool_destroy(b->client_pool);
	b->client_pool = usual;
	b->slot_size = slot_size;
	b->n_slots = n_slots;
}

static void every_size(struct bed *b, struct rpc_client *c)
{
	uint64_t rng = 42;

	for (uint32_t len = 0; len < 70; len++)
		both_ways(b, c, len, len + 1);
	for (uint32_t bits = 7; bits <= 23; bits++)
		for (int d = -1; d <= 1; d++)
			if (!b->brief || bits < 19 || d == (int)(bits % 3) - 1)
				both_ways(b, c, (1u << bits) + (uint32_t)d, bits);
	for (uint32_t i = 0; i < (b->brief ? 5 : 20 * b->scale); i++)
		both_ways(b, c, (uint32_t)(suite_random(&rng) % (4u << 20)), 100 + i);
}

static void largest(struct bed *b, struct rpc_client *c)
{
	static const uint32_t sizes[] = {(32u << 20) - 1, BIG_MAX - 1, BIG_MAX};

	for (uint32_t i = b->brief ? 2 : 0; i < 3; i++)
		both_ways(b, c, sizes[i], 7 + i);
	/* One byte more does not fit into a frame; the connection continues. */
	static struct slot_vec vec[RPC_BULK_VECS_MAX];
	uint32_t n = suite_slots(b->client_pool, BIG_MAX, vec);
	vec[n - 1].len++;
	assert_int_equal(suite_write(c, BIG_MAX + 1, 0, vec, n, BULK_MS), -LE_TOO_BIG);
	suite_slots_put(vec, n);
	both_ways(b, c, 4097, 3);
}

static void test_bulk_every_size(struct bed *b)
{
	with_big_slots(b, every_size);
}

static void test_bulk_largest(struct bed *b)
{
	with_big_slots(b, largest);
}

/* A transfer writes only to its pieces. */
static void test_bulk_edges(struct bed *b)
{
	struct slot_vec vec[RPC_BULK_VECS_MAX], all[RPC_BULK_VECS_MAX], one;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t n = suite_slots_odd(b->client_pool, 300000 + 4099 * i, i + 1, vec, 16);
		for (uint32_t k = 0; k < n; k++) {
			all[k] = (struct slot_vec){vec[k].slot, 0, b->slot_size};
			suite_fill(&all[k], 1, 1000 + k);
		}
		assert_int_equal(suite_read(c, 300000 + 4099 * i, i | SUITE_ODD, vec, n, BULK_MS),
				 0);
		/* Restores the pieces from the pattern: afterwards any difference is a write
		 * outside of them. */
		for (uint32_t k = 0; k < n; k++) {
			struct slot *tmp;
			assert_int_equal(slot_get(b->client_pool, NO_DEADLINE, &tmp), 0);
			one = (struct slot_vec){tmp, 0, b->slot_size};
			suite_fill(&one, 1, 1000 + k);
			memcpy(vec[k].slot->data + vec[k].off, tmp->data + vec[k].off, vec[k].len);
			slot_unref(tmp);
			assert_true(suite_is_pattern(&all[k], 1, b->slot_size, 1000 + k));
		}
		suite_slots_put(vec, n);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* ---- memory of the caller ---- */

#define LENT_SIZE (3u << 20)

static int read_to(struct rpc_client *c, uint8_t *to, uint32_t len, uint32_t seed)
{
	struct slot user_memory = {.data = to, .size = len, .refs = 1};
	struct slot_vec v = {&user_memory, 0, len};

	int rc = suite_read(c, len, seed, &v, 1, BULK_MS);
	assert_int_equal(user_memory.refs, 1);
	return rc;
}

static void read_lent(struct rpc_client *c, uint8_t *base)
{
	for (uint32_t i = 0; i < 24; i++) {
		uint32_t off = i * 4099 + i % 5, len = 1 + i * i * 997 % 250000;

		memset(base, 0xee, LENT_SIZE);
		assert_int_equal(read_to(c, base + off, len, i + 1), 0);
		for (uint32_t k = 0; k < LENT_SIZE; k++)
			if ((k < off || k >= off + len) && base[k] != 0xee)
				fail_msg("byte %u was touched by %u at %u", k, len, off);
	}
	assert_int_equal(read_to(c, base + LENT_SIZE - 4097, 4097, 9), 0);
}

/* If a transport needs registered memory for receiving, this side refuses other memory. */
static void test_bulk_lent(struct bed *b)
{
	struct transport *t = b->transport;
	struct user_memory *user_memory, *again;
	uint8_t *base = mmap(NULL, LENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			     -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	bool anywhere = transport_lands(t, base, LENT_SIZE);
	assert_int_equal(read_to(c, base, 5000, 1), anywhere ? 0 : -LE_NOTSUP);
	assert_int_equal(transport_register(t, base, LENT_SIZE, &user_memory), 0);
	assert_true(transport_lands(t, base + 1, LENT_SIZE - 1));
	assert_true(anywhere || !transport_lands(t, base + 1, LENT_SIZE));
	read_lent(c, base);
	/* Memory of a slot, by address. */
	struct slot *s;
	assert_int_equal(slot_get(b->client_pool, NO_DEADLINE, &s), 0);
	assert_true(transport_lands(t, s->data + 7, b->slot_size - 7));
	assert_true(anywhere || !transport_lands(t, s->data + 7, b->slot_size));
	assert_int_equal(read_to(c, s->data + 7, 70000, 3), 0);
	slot_unref(s);
	transport_unregister(t, user_memory);
	assert_true(anywhere == transport_lands(t, base, LENT_SIZE));
	assert_int_equal(read_to(c, base, 5000, 1), anywhere ? 0 : -LE_NOTSUP);
	assert_int_equal(transport_register(t, base, LENT_SIZE / 2, &again), 0);
	assert_int_equal(read_to(c, base, 5000, 4), 0);
	transport_unregister(t, again);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
	munmap(base, LENT_SIZE);
}

const struct suite_test suite_bulk_tests[] = {
	{"bulk_lent", test_bulk_lent},
	{"bulk_every_size", test_bulk_every_size},
	{"bulk_largest", test_bulk_largest},
	{"bulk_edges", test_bulk_edges},
	{NULL, NULL},
};
