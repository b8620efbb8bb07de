/* What a client remembers of inodes and names, within bounds, and what it may say of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/client.h"
#include "client/kept.h"
#include "client/name_filter.h"
#include "common/rt/loop.h"
#include "common/rt/sim.h"

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
	inode_table_init(c);
	names_init(&c->names, NAMES_MAX);
	lease_init(c);
	latch_init(&c->bg, 0);
	waitq_init(&c->company);
	/* Long after any former process. */
	fiber_sleep_us(10000000);
	c->leases.heard_us = loop_now_us();
	b->body(c);
	inode_table_fini(c);
	names_fini(&c->names);
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

/* Found by measuring: as many opened files as may be left no room for anything else, so the
 * directory in which they were made was forgotten with each of them, and its lease given back. */
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

/* The answer to a question: the file is open for writing, and leased. */
static void answered(struct client *c, struct inode *i, uint64_t change, uint64_t size)
{
	struct attr a = {.ino = i->ino,
			 .mode = S_IFREG | 0644,
			 .nlink = 1,
			 .change = change,
			 .size = size,
			 .flags = ATTR_LEASED | ATTR_UNSETTLED};

	fiber_sleep_us(1000);
	c->leases.heard_us = loop_now_us();
	inode_update(c, i, &a, false, loop_now_us());
}

/* Who alone writes knows the size, until an answer tells of a change that it knows nothing of: of
 * its own truncation, perhaps, that was given up. */
static void size_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});
	struct idata *d;

	answered(c, i, 1, 0);
	assert_int_equal(inode_data(c, i, &d), 0);
	d->n_write = 1;
	d->size = 100;
	assert_true(inode_size_fresh(c, i));
	answered(c, i, 1, 0);
	assert_true(inode_size_fresh(c, i));
	i->settled_us = loop_now_us(); /* as the chains said */
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
	/* The newer half of what was opened is still known. */
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
	c->leases.heard_us = loop_now_us();
	return i;
}

static void told(struct client *c, struct inode *dir, uint64_t k, uint64_t ino, bool own)
{
	char buf[32];

	dir->attr.change++;
	names_told(c, &dir->attr, name_of(buf, k), (struct ino){ino}, own, loop_now_us());
}

/* 1: there is one, 0: there is none, -1: the MDS has to be asked. */
static int answer(struct client *c, struct inode *dir, uint64_t k)
{
	struct ino ino;
	char buf[32];

	if (!names_find(c, dir, name_of(buf, k), &ino))
		return -1;
	return ino.v != 0;
}

static void many_body(struct client *c)
{
	const uint64_t n = 7 * NAMES_MAX; /* what the filters have room for, nearly */
	struct inode *dir = make_dir(c);
	uint32_t asked = 0;

	for (uint64_t k = 0; k < n; k++) {
		int a = answer(c, dir, k);

		assert_true(a <= 0);
		asked += a < 0;
		told(c, dir, k, 1000 + k, true);
	}
	/* Before: every time, from the first one on that had to go. */
	assert_true(asked < n / 50);
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
	size_t room = c->names.filter_room;
	struct inode *dir = make_dir(c);

	for (uint64_t k = 0; k < 20 * NAMES_MAX; k++)
		told(c, dir, k, 1000 + k, true);
	assert_true(room - c->names.filter_room <= NAMES_MAX * NAME_FILTER_BYTES);
	/* More than may be remembered even so: then everything is asked. */
	assert_int_equal(answer(c, dir, 100000000), -1);
	assert_int_equal(c->names.filter_room, room);
	inode_put(c, dir);
}

static void beyond_the_room_for_filters_everything_is_asked(void **state)
{
	(void)state;
	run(room_body);
}

/* An answer that is not taken, or older than what is known, says nothing of the other names. */
static void doubt_body(struct client *c)
{
	struct inode *dir = make_dir(c);
	struct attr old;
	char buf[32];

	told(c, dir, 1, 101, true);
	old = dir->attr;
	told(c, dir, 2, 102, true);
	/* Of a creation before that one. */
	names_told(c, &old, name_of(buf, 3), (struct ino){103}, true, loop_now_us());
	assert_int_equal(answer(c, dir, 3), -1);
	dir->n_changing = 1;
	told(c, dir, 1, 101, false);
	dir->n_changing = 0;
	assert_int_equal(answer(c, dir, 1), -1);
	assert_int_equal(answer(c, dir, 2), 1);
	assert_int_equal(answer(c, dir, 4), 0);
	told(c, dir, 1, 0, true);
	assert_int_equal(answer(c, dir, 1), 0);
	/* A change of which it is not known what it did. */
	names_incomplete(c, dir);
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
	struct changing one, whole;
	char buf[32];

	told(c, dir, 1, 101, true);
	told(c, dir, 2, 102, true);
	changing_begin(c, &one, dir_ino);
	assert_int_equal(changing_name(&one, dir_ino, name_of(buf, 1)).v, 101);
	assert_int_equal(answer(c, dir, 1), -1);
	assert_int_equal(answer(c, dir, 2), 1);
	assert_int_equal(answer(c, dir, 3), 0);
	changing_begin(c, &whole, dir_ino);
	assert_int_equal(answer(c, dir, 2), -1);
	assert_int_equal(answer(c, dir, 3), -1);
	changing_end(&whole, 0);
	assert_int_equal(answer(c, dir, 2), 1);
	changing_end(&one, 0);
	told(c, dir, 1, 0, true);
	assert_int_equal(answer(c, dir, 1), 0);
	assert_int_equal(answer(c, dir, 3), 0);
	/* Twice in one directory, as by a rename; what has become of it is not known. */
	changing_begin(c, &one, dir_ino);
	changing_also(&one, dir_ino);
	changing_name(&one, dir_ino, name_of(buf, 2));
	changing_name(&one, dir_ino, name_of(buf, 3));
	assert_int_equal(answer(c, dir, 2), -1);
	assert_int_equal(answer(c, dir, 3), -1);
	assert_int_equal(answer(c, dir, 4), 0);
	changing_end(&one, -LE_IO);
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

	names_listed(c, dir, change, name_of(buf, k), (struct ino){ino}, loop_now_us());
}

static void change_of_name(struct client *c, uint64_t k, int rc)
{
	struct changing ch;
	char buf[32];

	changing_begin(c, &ch, dir_ino);
	changing_name(&ch, dir_ino, name_of(buf, k));
	changing_end(&ch, rc);
}

/* A listing is handed out later than it was made: of what this client has changed since it tells
 * nothing, whether or not that is still in memory. */
static void listed_body(struct client *c)
{
	struct inode *dir = make_dir(c);
	struct changing ch;
	uint64_t before;
	char buf[32];

	names_incomplete(c, dir);
	told(c, dir, 1, 101, true);
	before = dir->attr.change;
	told(c, dir, 1, 0, true);
	listed(c, dir, before, 1, 101);
	assert_int_equal(answer(c, dir, 1), 0);
	listed(c, dir, before, 2, 102);
	assert_int_equal(answer(c, dir, 2), 1);
	/* It tried to make it, and does not know of it any more. */
	change_of_name(c, 1, -LE_EXIST);
	listed(c, dir, before, 1, 101);
	assert_int_equal(answer(c, dir, 1), -1);
	listed(c, dir, dir->attr.change, 1, 101);
	assert_int_equal(answer(c, dir, 1), 1);

	/* Just now. */
	changing_begin(c, &ch, dir_ino);
	changing_name(&ch, dir_ino, name_of(buf, 3));
	listed(c, dir, dir->attr.change, 3, 103);
	listed(c, dir, dir->attr.change, 4, 104);
	changing_end(&ch, -LE_EXIST);
	assert_int_equal(answer(c, dir, 3), -1);
	assert_int_equal(answer(c, dir, 4), 1);

	/* Nobody knows what came of it. */
	change_of_name(c, 5, -LE_IO);
	listed(c, dir, dir->attr.change, 5, 105);
	assert_int_equal(answer(c, dir, 5), -1);
	dir->attr.change++;
	listed(c, dir, dir->attr.change, 5, 105);
	assert_int_equal(answer(c, dir, 5), 1);

	/* It had to go. */
	before = dir->attr.change;
	told(c, dir, 6, 0, true);
	for (uint64_t k = 0; k < NAMES_MAX; k++)
		listed(c, dir, dir->attr.change, 1000 + k, 1000 + k);
	listed(c, dir, before, 6, 106);
	assert_int_equal(answer(c, dir, 6), -1);

	/* Made while it had no lease, and answered late. */
	before = dir->attr.change++;
	names_told(c, &dir->attr, name_of(buf, 7), (struct ino){0}, true, dir->lease_us - 1);
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
	size_t room = c->names.filter_room;
	struct inode *dir = make_dir(c);

	for (uint64_t k = 0; k < 2 * NAMES_MAX; k++)
		told(c, dir, k, 1000 + k, true);
	assert_int_equal(answer(c, dir, 100000000), 0);
	/* Recalled and given again: others may have made names. */
	fiber_sleep_us(1000);
	c->leases.heard_us = dir->lease_us = loop_now_us();
	assert_int_equal(answer(c, dir, 100000000), -1);
	assert_int_equal(answer(c, dir, 0), -1);
	told(c, dir, 0, 1000, false);
	assert_int_equal(c->names.filter_room, room);
	inode_put(c, dir);
}

static void with_the_lease_goes_what_was_known_of_all_names(void **state)
{
	(void)state;
	run(lease_body);
}

static void filter_is_rarely_wrong_and_never_forgets(void **state)
{
	size_t room = 1u << 20;
	struct name_filter *f = NULL;
	uint32_t wrong = 0;
	uint64_t n = 0;

	(void)state;
	while (name_filter_add(&f, hash_u64(n), &room) == 0)
		n++;
	assert_in_range(n, 500000, 530000);
	for (uint64_t k = 0; k < n; k++)
		assert_true(name_filter_may_have(f, hash_u64(k)));
	for (uint64_t k = 0; k < 100000; k++)
		wrong += name_filter_may_have(f, hash_u64((1ull << 40) + k));
	assert_true(wrong < 2000);
	name_filter_free(&f, &room);
	assert_int_equal(room, 1u << 20);
	assert_null(f);
	assert_false(name_filter_may_have(f, 1));
}

/* ---- leases of what is forgotten ---- */

/* The kernel gets its attributes, and the client forgets it. */
static void forget_what_the_kernel_has(struct client *c, const struct attr *a)
{
	struct inode *i = inode_get(c, a->ino);

	i->lease_us = loop_now_us();
	c->leases.heard_us = loop_now_us();
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
	/* It is given back when the kernel has it no longer. */
	assert_int_equal(bed.n_invalidated, 0);
	assert_int_equal(c->leases.departures.n_due, 0);
	assert_int_equal(c->leases.departures.map.n, 1);
	/* What is not remembered is not leased to the kernel either. */
	assert_int_equal(ll_attr_us(c, &a), 0);
	/* What the kernel had is long over. */
	a.ino.v = 8;
	i = inode_get(c, a.ino);
	i->lease_us = loop_now_us();
	inode_put(c, i);
	assert_true(ll_attr_us(c, &a) > 0);
	fiber_sleep_us(6000000);
	c->leases.heard_us = loop_now_us();
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 10000 + k, false);
	assert_false(is_known(c, 8));
	assert_int_equal(bed.n_invalidated, 0);
	assert_int_equal(c->leases.departures.n_due, 1);
	assert_int_equal(c->leases.departures.map.n, 2);
}

/* A metadata server that has restarted recalls nothing. */
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

/* Forgotten, remembered, and forgotten again: the kernel has it anew. */
static void twice_body(struct client *c)
{
	struct attr a = {.ino = {7}, .flags = ATTR_LEASED};

	for (int round = 0; round < 2; round++) {
		forget_what_the_kernel_has(c, &a);
		fiber_sleep_us(3000000);
	}
	c->session = 1;
	lease_tick(c);
	assert_int_equal(c->leases.departures.n_returning, 0);
	assert_int_equal(c->leases.departures.map.n, 1);
}

/* Found by reading: the request was made while an inode was being removed, and looked that one up:
 * it was then in the list of those that are not used, and in none. */
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
	assert_int_equal(c->leases.departures.n_due, n - c->inodes.map.n);
	assert_int_equal(c->leases.departures.n_returning, 0);
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

/* Found by reading: it was given back all the same, and the client answered others' changes with
 * what it remembered. */
static void again_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});

	i->lease_us = loop_now_us();
	inode_put(c, i);
	for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
		use(c, 1000 + k, false);
	assert_int_equal(c->leases.departures.n_due, 1);
	i = inode_get(c, (struct ino){7});
	i->lease_us = loop_now_us();
	inode_put(c, i);
	c->session = 1;
	lease_tick(c);
	assert_int_equal(c->leases.departures.n_returning, 0);
	assert_int_equal(c->leases.departures.n_due, 0);
}

/* Found by measuring: the server believed of hundreds of thousands of files that they were cached,
 * because the leases had been given while others were being given back, and were not taken. */
static void refused_body(struct client *c)
{
	struct inode *i = inode_get(c, (struct ino){7});
	uint64_t sent_us = loop_now_us();

	fiber_sleep_us(1000);
	i->recalled_us = loop_now_us();
	lease_given(c, i, sent_us);
	assert_false(lease_held(c, i));
	assert_int_equal(c->leases.departures.n_due, 1);
	/* The answer comes after it was forgotten. */
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

/* Pages of what a former process had open may be old, before the attributes are known here. */
static void unknown_body(struct client *c)
{
	const uint32_t modes[] = {0, S_IFREG | 0644, S_IFDIR | 0755};

	for (uint64_t k = 0; k < ARRAY_SIZE(modes); k++) {
		struct inode *i = inode_get(c, (struct ino){7 + k});

		i->attr.mode = modes[k];
		assert_int_equal(lease_recall(c, i->ino), 0);
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

/* For how long the kernel may believe it. */
static uint64_t name_us(struct client *c, uint64_t k, uint64_t ino)
{
	char buf[32];

	return ll_name_us(c, dir_ino, name_of(buf, k), (struct ino){ino});
}

/* What was looked up before others changed it is told to the kernel later, under a lease that was
 * given since. */
static void late_body(struct client *c)
{
	struct inode *dir = make_dir(c);

	told(c, dir, 1, 101, false);
	assert_true(name_us(c, 1, 101) > 0);
	assert_true(name_us(c, 2, 0) > 0);
	assert_int_equal(name_us(c, 2, 101), 0);
	assert_int_equal(lease_recall(c, dir_ino), 0);
	fiber_sleep_us(1000);
	c->leases.heard_us = loop_now_us();
	lease_given(c, dir, loop_now_us());
	assert_true(lease_held(c, dir));
	assert_int_equal(name_us(c, 1, 101), 0);
	assert_int_equal(name_us(c, 2, 0), 0);
	told(c, dir, 1, 101, false);
	assert_true(name_us(c, 1, 101) > 0);
	/* Changed here. */
	told(c, dir, 1, 0, true);
	assert_int_equal(name_us(c, 1, 101), 0);
	assert_true(name_us(c, 1, 0) > 0);
	inode_put(c, dir);
}

static void the_kernel_is_given_names_that_are_known_to_be_so(void **state)
{
	(void)state;
	run(late_body);
}

/* How long its recall takes. */
static uint64_t recall_us(struct client *c, uint64_t ino)
{
	uint64_t begun_us = loop_now_us();

	assert_int_equal(lease_recall(c, (struct ino){ino}), 0);
	return loop_now_us() - begun_us;
}

/* Names of a directory that was forgotten meanwhile, or of which the former process knew. */
static void kernel_names_body(struct client *c)
{
	struct attr file = {.ino = {9}, .mode = S_IFREG | 0644};
	static struct ll_kept memory = {.session = 77};

	for (int again = 0; again < 2; again++) {
		struct inode *i = make_dir(c);

		told(c, i, 1, 101, true);
		inode_put(c, i);
		assert_true(name_us(c, 1, 101) > 0);
		for (uint64_t k = 0; k < 2 * INODES_MAX; k++)
			use(c, 1000 + k, false);
		assert_false(is_known(c, dir_ino.v));
		if (again)
			use(c, dir_ino.v, false);
		assert_true(recall_us(c, dir_ino.v) > 100000);
	}
	c->kept = &memory;
	kept_start(c);
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

/* Somebody may use it at that moment who has not opened it. */
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
