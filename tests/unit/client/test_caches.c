/* SPDX-License-Identifier: Apache-2.0 */
/* What a client caches of inodes and names, within limits, and what it may answer for the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/cache/attr_cache.h"
#include "client/cache/bloom_filter.h"
#include "client/cache/dentry_cache.h"
#include "client/cache/evict.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/ops/own_change.h"
#include "client/ops/recall.h"
#include "client/servers/restart_log.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"

#define INODES_MAX 1024u
#define NAMES_MAX  1024u

struct bed {
	struct client c;
	void (*body)(struct client *c);
	uint32_t n_invalidated, n_data; /* of these, with their data */
	uint32_t n_owners;
	bool done;
};

static struct bed bed;

static void invalidate(void *arg, struct ino ino, bool data)
{
	struct bed *b = arg;

	(void)ino;
	b->n_invalidated++;
	b->n_data += data;
}

static int owner_changed(void *arg, struct ino ino)
{
	(void)ino;
	((struct bed *)arg)->n_owners++;
	return 0;
}

static void test_main(struct loop *l, void *arg)
{
	struct bed *b = arg;
	struct client *c = &b->c;

	fiber_sleep_us(1000);
	c->magic = CLIENT_MAGIC;
	c->loop = l;
	c->invalidate = invalidate;
	c->owner_changed = owner_changed;
	c->arg = b;
	c->params.inodes_max = INODES_MAX;
	c->params.names_max = NAMES_MAX;
	c->leases.term_us = 4000000;
	inode_table_init(c, inode_on_evict);
	dentry_cache_init(&c->names, NAMES_MAX);
	lease_init(c);
	latch_init(&c->bg, 0);
	waitq_init(&c->piggyback_q);
	/* Long after any previous process. */
	fiber_sleep_us(10000000);
	c->leases.last_contact_us = loop_now_us();
	b->body(c);
	inode_table_fini(c);
	dentry_cache_fini(&c->names);
	lease_fini(c);
	b->done = true;
}

static bool is_done(void *arg)
{
	return ((struct bed *)arg)->done;
}

static void run(void (*body)(struct client *c))
{
	struct sim_options so = {0};
	struct sim *sim;

	memset(&bed, 0, sizeof(bed));
	bed.body = body;
	assert_int_equal(sim_create(1, &so, &sim), 0);
	assert_int_equal(sim_proc_start(sim_proc_create(sim, "client"), test_main, &bed), 0);
	assert_int_equal(sim_run(sim, is_done, &bed, 1000000000), 0);
	sim_destroy(sim);
}

static bool is_known(struct client *c, uint64_t ino)
{
	struct inode *i = inode_peek(c, (struct ino){ino});

	if (i != NULL)
		inode_put(c, i);
	return i != NULL;
}

static void use(struct client *c, uint64_t ino, bool opened)
{
	struct inode *i = inode_get(c, (struct ino){ino});

	assert_non_null(i);
	i->opened |= opened;
	inode_put(c, i);
}

/* ---- inodes ---- */

/* With as many open files as the cache has space for, the directory in which they were created used
 * to be evicted with each of them, and its lease returned. */
static void directories_body(struct client *c)
{
	for (uint64_t k = 0; k < 10 * INODES_MAX; k++) {
		use(c, 2, false);
		use(c, 1000 + k, true);
		assert_true(is_known(c, 2));
	}
	assert_in_range(c->inodes.map.n, INODES_MAX - 8, INODES_MAX + 8);
}

static void directories_outlive_the_files_that_are_made_in_them(void **state)
{
	(void)state;
	run(directories_body);
}

/* A reply: the file is open for writing, and leased. */
static void answered(struct client *c, struct inode *i, uint64_t change, uint64_t size)
{
	struct attr a = {.ino = i->ino,
			 .mode = S_IFREG | 0644,
			 .nlink = 1,
			 .change = change,
			 .size = size,
			 .flags = ATTR_LEASED | ATTR_UNSETTLED};

	fiber_sleep_us(1000);
	c->leases.last_contact_us = loop_now_us();
	inode_update(c, i, &a, false, loop_now_us());
}

/* The only writer has the exact size, until a reply has a change counter that it has not seen:
 * perhaps that of its own truncation with an unknown outcome. */
static void size_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});
	struct inode_io *d;

	answered(c, i, 1, 0);
	assert_int_equal(inode_data(c, i, &d), 0);
	d->n_write = 1;
	d->size = 100;
	assert_true(inode_size_fresh(c, i));
	answered(c, i, 1, 0);
	assert_true(inode_size_fresh(c, i));
	i->settled_us = loop_now_us(); /* as the chains reported */
	i->attr.size = 100;
	answered(c, i, 2, 10);
	assert_false(inode_size_fresh(c, i));
	assert_true(inode_attr_fresh(c, i));
	assert_int_equal(i->settled_us, 0);
	assert_int_equal(i->attr.size, 10);
	answered(c, i, 2, 10);
	assert_false(inode_size_fresh(c, i));
	assert_int_equal(i->settled_us, 0);
	d->n_write = 0;
	inode_put(c, i);
}

static void a_size_is_not_believed_when_something_unknown_has_changed(void **state)
{
	(void)state;
	run(size_body);
}

static void listing_body(struct client *c)
{
	for (uint64_t k = 0; k < INODES_MAX; k++)
		use(c, 1000 + k, true);
	for (uint64_t k = 0; k < 10 * INODES_MAX; k++)
		use(c, 100000 + k, false);
	/* The newer half of the opened inodes is still cached. */
	assert_true(is_known(c, 1000 + INODES_MAX - 1));
	assert_true(is_known(c, 1000 + INODES_MAX * 5 / 8));
	assert_in_range(c->inodes.map.n, INODES_MAX - 8, INODES_MAX + 8);
}

static void a_long_listing_leaves_half_to_what_was_opened(void **state)
{
	(void)state;
	run(listing_body);
}

/* ---- names ---- */

static const struct ino dir_ino = {5};

static struct bytes name_of(char buf[32], uint64_t k)
{
	snprintf(buf, 32, "name-%llu", (unsigned long long)k);
	return bytes_str(buf);
}

/* As after mkdir: leased, empty. */
static struct inode *make_dir(struct client *c)
{
	struct inode *i = inode_get(c, dir_ino);

	assert_non_null(i);
	i->attr = (struct attr){.ino = dir_ino, .mode = S_IFDIR | 0755, .nlink = 2, .change = 1};
	i->lease_us = i->attr_us = i->complete_us = loop_now_us();
	fiber_sleep_us(1000);
	c->leases.last_contact_us = loop_now_us();
	return i;
}

static void update(struct client *c, struct inode *dir, uint64_t k, uint64_t ino, bool own)
{
	char buf[32];

	dir->attr.change++;
	dentry_cache_update(c, &dir->attr, name_of(buf, k), (struct ino){ino}, own, loop_now_us());
}

/* Returns 1 if the name exists, 0 if it does not, -1 if the MDS must be queried. */
static int answer(struct client *c, struct inode *dir, uint64_t k)
{
	struct ino ino;
	char buf[32];

	if (!dentry_cache_find(c, dir, name_of(buf, k), &ino))
		return -1;
	return ino.v != 0;
}

static void many_body(struct client *c)
{
	const uint64_t n = 7 * NAMES_MAX; /* almost as many as the filters have space for */
	struct inode *dir = make_dir(c);
	uint32_t tried = 0;

	for (uint64_t k = 0; k < n; k++) {
		int a = answer(c, dir, k);

		assert_true(a <= 0);
		tried += a < 0;
		update(c, dir, k, 1000 + k, true);
	}
	/* Without filters: every time, from the first evicted name on. */
	assert_true(tried < n / 50);
	assert_int_equal(c->names.n, NAMES_MAX);
	for (uint64_t k = 0; k < n; k++)
		assert_int_equal(answer(c, dir, k), k < n - NAMES_MAX ? -1 : 1);
	inode_put(c, dir);
}

static void new_names_need_no_question_in_a_directory_larger_than_memory(void **state)
{
	(void)state;
	run(many_body);
}

static void room_body(struct client *c)
{
	size_t space = c->names.filter_space;
	struct inode *dir = make_dir(c);

	for (uint64_t k = 0; k < 20 * NAMES_MAX; k++)
		update(c, dir, k, 1000 + k, true);
	assert_true(space - c->names.filter_space <= NAMES_MAX * BLOOM_FILTER_BYTES);
	/* More than the filters can hold: then every name is a query. */
	assert_int_equal(answer(c, dir, 100000000), -1);
	assert_int_equal(c->names.filter_space, space);
	inode_put(c, dir);
}

static void beyond_the_room_for_filters_everything_is_asked(void **state)
{
	(void)state;
	run(room_body);
}

/* A reply that is not recorded, or is older than the cache, proves nothing about other names. */
static void doubt_body(struct client *c)
{
	struct inode *dir = make_dir(c);
	struct attr old;
	char buf[32];

	update(c, dir, 1, 101, true);
	old = dir->attr;
	update(c, dir, 2, 102, true);
	/* The reply to an earlier creation. */
	dentry_cache_update(c, &old, name_of(buf, 3), (struct ino){103}, true, loop_now_us());
	assert_int_equal(answer(c, dir, 3), -1);
	dir->n_changing = 1;
	update(c, dir, 1, 101, false);
	dir->n_changing = 0;
	assert_int_equal(answer(c, dir, 1), -1);
	assert_int_equal(answer(c, dir, 2), 1);
	assert_int_equal(answer(c, dir, 4), 0);
	update(c, dir, 1, 0, true);
	assert_int_equal(answer(c, dir, 1), 0);
	/* A change with an unknown outcome. */
	dentry_cache_set_incomplete(c, dir);
	assert_int_equal(answer(c, dir, 4), -1);
	assert_int_equal(answer(c, dir, 2), 1);
	inode_put(c, dir);
}

static void answers_that_contradict_leave_one_name_in_doubt(void **state)
{
	(void)state;
	run(doubt_body);
}

static void own_body(struct client *c)
{
	struct inode *dir = make_dir(c);
	struct pending_change one, whole;
	char buf[32];

	update(c, dir, 1, 101, true);
	update(c, dir, 2, 102, true);
	pending_change_begin(c, &one, dir_ino);
	assert_int_equal(pending_change_name(&one, dir_ino, name_of(buf, 1)).v, 101);
	assert_int_equal(answer(c, dir, 1), -1);
	assert_int_equal(answer(c, dir, 2), 1);
	assert_int_equal(answer(c, dir, 3), 0);
	pending_change_begin(c, &whole, dir_ino);
	assert_int_equal(answer(c, dir, 2), -1);
	assert_int_equal(answer(c, dir, 3), -1);
	pending_change_end(&whole, 0);
	assert_int_equal(answer(c, dir, 2), 1);
	pending_change_end(&one, 0);
	update(c, dir, 1, 0, true);
	assert_int_equal(answer(c, dir, 1), 0);
	assert_int_equal(answer(c, dir, 3), 0);
	/* Twice in one directory, as by a rename, with an unknown outcome. */
	pending_change_begin(c, &one, dir_ino);
	pending_change_also(&one, dir_ino);
	pending_change_name(&one, dir_ino, name_of(buf, 2));
	pending_change_name(&one, dir_ino, name_of(buf, 3));
	assert_int_equal(answer(c, dir, 2), -1);
	assert_int_equal(answer(c, dir, 3), -1);
	assert_int_equal(answer(c, dir, 4), 0);
	pending_change_end(&one, -LE_IO);
	assert_int_equal(answer(c, dir, 4), -1);
	assert_int_equal(answer(c, dir, 1), 0);
	assert_int_equal(dir->n_changing + dir->n_names_changing, 0);
	inode_put(c, dir);
}

static void while_one_name_changes_the_others_are_known(void **state)
{
	(void)state;
	run(own_body);
}

static void listed(struct client *c, struct inode *dir, uint64_t change, uint64_t k, uint64_t ino)
{
	char buf[32];

	dentry_cache_update_listed(c, dir, change, name_of(buf, k), (struct ino){ino},
				   loop_now_us());
}

static void change_of_name(struct client *c, uint64_t k, int rc)
{
	struct pending_change ch;
	char buf[32];

	pending_change_begin(c, &ch, dir_ino);
	pending_change_name(&ch, dir_ino, name_of(buf, k));
	pending_change_end(&ch, rc);
}

/* A listing is handed out later than it was fetched: it must not override this client's changes
 * since, whether or not they are still cached. */
static void listed_body(struct client *c)
{
	struct inode *dir = make_dir(c);
	struct pending_change ch;
	uint64_t before;
	char buf[32];

	dentry_cache_set_incomplete(c, dir);
	update(c, dir, 1, 101, true);
	before = dir->attr.change;
	update(c, dir, 1, 0, true);
	listed(c, dir, before, 1, 101);
	assert_int_equal(answer(c, dir, 1), 0);
	listed(c, dir, before, 2, 102);
	assert_int_equal(answer(c, dir, 2), 1);
	/* The client tried to create it, and its entry was evicted. */
	change_of_name(c, 1, -LE_EXIST);
	listed(c, dir, before, 1, 101);
	assert_int_equal(answer(c, dir, 1), -1);
	listed(c, dir, dir->attr.change, 1, 101);
	assert_int_equal(answer(c, dir, 1), 1);

	/* In flight. */
	pending_change_begin(c, &ch, dir_ino);
	pending_change_name(&ch, dir_ino, name_of(buf, 3));
	listed(c, dir, dir->attr.change, 3, 103);
	listed(c, dir, dir->attr.change, 4, 104);
	pending_change_end(&ch, -LE_EXIST);
	assert_int_equal(answer(c, dir, 3), -1);
	assert_int_equal(answer(c, dir, 4), 1);

	/* Unknown outcome. */
	change_of_name(c, 5, -LE_IO);
	listed(c, dir, dir->attr.change, 5, 105);
	assert_int_equal(answer(c, dir, 5), -1);
	dir->attr.change++;
	listed(c, dir, dir->attr.change, 5, 105);
	assert_int_equal(answer(c, dir, 5), 1);

	/* Evicted. */
	before = dir->attr.change;
	update(c, dir, 6, 0, true);
	for (uint64_t k = 0; k < NAMES_MAX; k++)
		listed(c, dir, dir->attr.change, 1000 + k, 1000 + k);
	listed(c, dir, before, 6, 106);
	assert_int_equal(answer(c, dir, 6), -1);

	/* Created without a lease, and answered late. */
	before = dir->attr.change++;
	dentry_cache_update(c, &dir->attr, name_of(buf, 7), (struct ino){0}, true,
			    dir->lease_us - 1);
	listed(c, dir, before, 7, 107);
	assert_int_equal(answer(c, dir, 7), -1);
	inode_put(c, dir);
}

static void an_old_listing_tells_nothing_of_own_changes(void **state)
{
	(void)state;
	run(listed_body);
}

static void lease_body(struct client *c)
{
	size_t space = c->names.filter_space;
	struct inode *dir = make_dir(c);

	for (uint64_t k = 0; k < 2 * NAMES_MAX; k++)
		update(c, dir, k, 1000 + k, true);
	assert_int_equal(answer(c, dir, 100000000), 0);
	/* Recalled and granted again: other clients may have created names. */
	fiber_sleep_us(1000);
	c->leases.last_contact_us = dir->lease_us = loop_now_us();
	assert_int_equal(answer(c, dir, 100000000), -1);
	assert_int_equal(answer(c, dir, 0), -1);
	update(c, dir, 0, 1000, false);
	assert_int_equal(c->names.filter_space, space);
	inode_put(c, dir);
}

static void with_the_lease_goes_what_was_known_of_all_names(void **state)
{
	(void)state;
	run(lease_body);
}

static void filter_is_rarely_wrong_and_never_forgets(void **state)
{
	size_t space = 1u << 20;
	struct bloom_filter *f = NULL;
	uint32_t wrong = 0;
	uint64_t n = 0;

	(void)state;
	while (bloom_filter_add(&f, hash_u64(n), &space) == 0)
		n++;
	assert_in_range(n, 500000, 530000);
	for (uint64_t k = 0; k < n; k++)
		assert_true(bloom_filter_may_have(f, hash_u64(k)));
	for (uint64_t k = 0; k < 100000; k++)
		wrong += bloom_filter_may_have(f, hash_u64((1ull << 40) + k));
	assert_true(wrong < 2000);
	bloom_filter_free(&f, &space);
	assert_int_equal(space, 1u << 20);
	assert_null(f);
	assert_false(bloom_filter_may_have(f, 1));
}

/* ---- leases of evicted inodes ---- */

/* The kernel gets its attributes, and the client evicts it. */
static void forget_what_the_kernel_has(struct client *c, const struct attr *a)
{
	struct inode *i = inode_get(c, a->ino);

	i->lease_us = loop_now_us();
	c->leases.last_contact_us = loop_now_us();
	inode_put(c, i);
	assert_true(ll_attr_us(c, a) > 0);
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 1000 + k, false);
	assert_false(is_known(c, a->ino.v));
}

static void kernel_body(struct client *c)
{
	struct attr a = {.ino = {7}, .flags = ATTR_LEASED};
	struct inode *i;

	forget_what_the_kernel_has(c, &a);
	/* Its lease is returned when the kernel's attributes have expired. */
	assert_int_equal(bed.n_invalidated, 0);
	assert_int_equal(c->leases.lease_returns.n_due, 0);
	assert_int_equal(c->leases.lease_returns.map.n, 1);
	/* What is not cached is not leased to the kernel either. */
	assert_int_equal(ll_attr_us(c, &a), 0);
	/* The kernel's attributes have expired long before. */
	a.ino.v = 8;
	i = inode_get(c, a.ino);
	i->lease_us = loop_now_us();
	inode_put(c, i);
	assert_true(ll_attr_us(c, &a) > 0);
	fiber_sleep_us(6000000);
	c->leases.last_contact_us = loop_now_us();
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 10000 + k, false);
	assert_false(is_known(c, 8));
	assert_int_equal(bed.n_invalidated, 0);
	assert_int_equal(c->leases.lease_returns.n_due, 1);
	assert_int_equal(c->leases.lease_returns.map.n, 2);
}

/* A restarted metadata server recalls nothing. */
static void restart_body(struct client *c)
{
	struct attr a = {.ino = {7}, .flags = ATTR_LEASED};

	forget_what_the_kernel_has(c, &a);
	assert_int_equal(bed.n_invalidated, 0);
	lease_void_all(c, 4000, false);
	assert_int_equal(bed.n_invalidated, 1);
}

static void the_kernel_forgets_after_a_restart_what_is_not_remembered_too(void **state)
{
	(void)state;
	run(restart_body);
}

/* Evicted, cached, and evicted again: the kernel has its attributes again. */
static void twice_body(struct client *c)
{
	struct attr a = {.ino = {7}, .flags = ATTR_LEASED};

	for (int round = 0; round < 2; round++) {
		forget_what_the_kernel_has(c, &a);
		fiber_sleep_us(3000000);
	}
	c->session = 1;
	lease_tick(c);
	assert_int_equal(c->leases.lease_returns.n_returning, 0);
	assert_int_equal(c->leases.lease_returns.map.n, 1);
}

/* Returning a lease must not look up inodes: it happens while an inode is being evicted, which is
 * then in no list. */
static void forget_many_body(struct client *c)
{
	const uint32_t n = 2000;

	c->invalidate = NULL; /* a program that uses the library */
	c->session = 1;
	for (uint64_t k = 0; k < n; k++) {
		struct inode *i = inode_get(c, (struct ino){1000 + k});

		i->lease_us = loop_now_us();
		inode_put(c, i);
	}
	assert_int_equal(c->inodes.n_unused[0] + c->inodes.n_unused[1], c->inodes.map.n);
	assert_int_equal(c->leases.lease_returns.n_due, n - c->inodes.map.n);
	assert_int_equal(c->leases.lease_returns.n_returning, 0);
	c->session = 0;
}

static void forgetting_many_asks_for_nothing_by_itself(void **state)
{
	(void)state;
	run(forget_many_body);
}

static void what_the_kernel_was_given_again_is_kept_as_long(void **state)
{
	(void)state;
	run(twice_body);
}

static void what_the_kernel_has_is_given_back_later(void **state)
{
	(void)state;
	run(kernel_body);
}

/* A lease that is held again must not be returned: the client would keep using its cache. */
static void again_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});

	i->lease_us = loop_now_us();
	inode_put(c, i);
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 1000 + k, false);
	assert_int_equal(c->leases.lease_returns.n_due, 1);
	i = inode_get(c, (struct ino){7});
	i->lease_us = loop_now_us();
	inode_put(c, i);
	c->session = 1;
	lease_tick(c);
	assert_int_equal(c->leases.lease_returns.n_returning, 0);
	assert_int_equal(c->leases.lease_returns.n_due, 0);
}

/* A lease that is granted but not taken must be returned: else the server assumes that the inode is
 * cached. */
static void refused_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});
	uint64_t sent_us = loop_now_us();

	fiber_sleep_us(1000);
	i->recalled_us = loop_now_us();
	lease_given(c, i, sent_us);
	assert_false(lease_held(c, i));
	assert_int_equal(c->leases.lease_returns.n_due, 1);
	/* The reply comes after the eviction. */
	inode_put(c, i);
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 1000 + k, false);
	assert_false(is_known(c, 7));
	i = inode_get(c, (struct ino){7});
	lease_given(c, i, sent_us);
	assert_false(lease_held(c, i));
	fiber_sleep_us(1000);
	lease_given(c, i, loop_now_us());
	assert_true(lease_held(c, i));
	inode_put(c, i);
}

static void a_lease_that_is_not_taken_is_given_back(void **state)
{
	(void)state;
	run(refused_body);
}

static void a_lease_that_was_given_again_is_not_given_back(void **state)
{
	(void)state;
	run(again_body);
}

static int recall(struct client *c, struct ino ino)
{
	const struct cb_recall_req req = {ino, LEASE_CACHING, 0};

	return lease_recall(c, &req);
}

/* Pages of files that the previous process had open may be outdated until the new one has their
 * attributes. */
static void unknown_body(struct client *c)
{
	const uint32_t modes[] = {0, S_IFREG | 0644, S_IFDIR | 0755};

	for (uint64_t k = 0; k < ARRAY_SIZE(modes); k++) {
		struct inode *i = inode_get(c, (struct ino){7 + k});

		i->attr.mode = modes[k];
		assert_int_equal(recall(c, i->ino), 0);
		assert_int_equal(bed.n_invalidated, k + 1);
		assert_int_equal(bed.n_data, k == 0 ? 1 : 2);
		inode_put(c, i);
	}
}

static void a_recall_drops_the_pages_of_what_is_not_known(void **state)
{
	(void)state;
	run(unknown_body);
}

/* Returns for how long the kernel may cache the name. */
static uint64_t name_us(struct client *c, uint64_t k, uint64_t ino)
{
	char buf[32];

	return ll_name_us(c, dir_ino, name_of(buf, k), (struct ino){ino});
}

/* A name that was looked up before others changed it reaches the kernel later, under a new
 * lease. */
static void late_body(struct client *c)
{
	struct inode *dir = make_dir(c);

	update(c, dir, 1, 101, false);
	assert_true(name_us(c, 1, 101) > 0);
	assert_true(name_us(c, 2, 0) > 0);
	assert_int_equal(name_us(c, 2, 101), 0);
	assert_int_equal(recall(c, dir_ino), 0);
	fiber_sleep_us(1000);
	c->leases.last_contact_us = loop_now_us();
	lease_given(c, dir, loop_now_us());
	assert_true(lease_held(c, dir));
	assert_int_equal(name_us(c, 1, 101), 0);
	assert_int_equal(name_us(c, 2, 0), 0);
	update(c, dir, 1, 101, false);
	assert_true(name_us(c, 1, 101) > 0);
	/* Changed by this client. */
	update(c, dir, 1, 0, true);
	assert_int_equal(name_us(c, 1, 101), 0);
	assert_true(name_us(c, 1, 0) > 0);
	inode_put(c, dir);
}

static void the_kernel_is_given_names_that_are_known_to_be_so(void **state)
{
	(void)state;
	run(late_body);
}

/* Returns how long its recall takes. */
static uint64_t recall_us(struct client *c, uint64_t ino)
{
	uint64_t begun_us = loop_now_us();

	assert_int_equal(recall(c, (struct ino){ino}), 0);
	return loop_now_us() - begun_us;
}

/* Names of a directory that was evicted meanwhile, or that the previous process gave to the
 * kernel. */
static void kernel_names_body(struct client *c)
{
	struct attr file = {.ino = {9}, .mode = S_IFREG | 0644};
	static struct ll_restart_state memory = {.session = 77};

	for (int again = 0; again < 2; again++) {
		struct inode *i = make_dir(c);

		update(c, i, 1, 101, true);
		inode_put(c, i);
		assert_true(name_us(c, 1, 101) > 0);
		for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
			use(c, 1000 + k, false);
		assert_false(is_known(c, dir_ino.v));
		if (again)
			use(c, dir_ino.v, false);
		assert_true(recall_us(c, dir_ino.v) > 100000);
	}
	c->restart = &memory;
	restart_log_start(c);
	use(c, 7, false);
	use(c, 8, false);
	inode_saw(c, &file, false, loop_now_us());
	assert_int_equal(recall_us(c, 9), 0);
	assert_true(recall_us(c, 8) > 100000);
	assert_int_equal(recall_us(c, 7), 0);
}

static void a_recall_waits_for_names_that_the_kernel_was_given_before(void **state)
{
	(void)state;
	run(kernel_names_body);
}

static void owner_body(struct client *c)
{
	struct ino dir = {5};
	struct inode *i = inode_get(c, dir);

	assert_non_null(i);
	i->attr.mode = S_IFDIR | 0755;
	assert_int_equal(lease_owner_changed(c, dir), 0);
	inode_put(c, i);
	assert_int_equal(bed.n_owners, 0);
	assert_true(ll_hold(c, dir));
	assert_int_equal(lease_owner_changed(c, dir), 0);
	assert_int_equal(bed.n_owners, 1);
	ll_unhold(c, dir);
	assert_int_equal(lease_owner_changed(c, dir), 0);
	assert_int_equal(bed.n_owners, 1);
}

/* A program that has not opened it may use it at that moment. */
static void the_kernel_asks_for_the_owner_of_what_is_open(void **state)
{
	(void)state;
	run(owner_body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directories_outlive_the_files_that_are_made_in_them),
		cmocka_unit_test(a_size_is_not_believed_when_something_unknown_has_changed),
		cmocka_unit_test(a_long_listing_leaves_half_to_what_was_opened),
		cmocka_unit_test(new_names_need_no_question_in_a_directory_larger_than_memory),
		cmocka_unit_test(beyond_the_room_for_filters_everything_is_asked),
		cmocka_unit_test(answers_that_contradict_leave_one_name_in_doubt),
		cmocka_unit_test(while_one_name_changes_the_others_are_known),
		cmocka_unit_test(an_old_listing_tells_nothing_of_own_changes),
		cmocka_unit_test(with_the_lease_goes_what_was_known_of_all_names),
		cmocka_unit_test(filter_is_rarely_wrong_and_never_forgets),
		cmocka_unit_test(what_the_kernel_has_is_given_back_later),
		cmocka_unit_test(the_kernel_forgets_after_a_restart_what_is_not_remembered_too),
		cmocka_unit_test(what_the_kernel_was_given_again_is_kept_as_long),
		cmocka_unit_test(forgetting_many_asks_for_nothing_by_itself),
		cmocka_unit_test(a_lease_that_is_not_taken_is_given_back),
		cmocka_unit_test(a_lease_that_was_given_again_is_not_given_back),
		cmocka_unit_test(a_recall_drops_the_pages_of_what_is_not_known),
		cmocka_unit_test(the_kernel_is_given_names_that_are_known_to_be_so),
		cmocka_unit_test(a_recall_waits_for_names_that_the_kernel_was_given_before),
		cmocka_unit_test(the_kernel_asks_for_the_owner_of_what_is_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
