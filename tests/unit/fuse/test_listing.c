/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: batches, positions to continue from, attributes with the names. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuse/ops/readdirplus_policy.h"

static struct kernel_reply r;

static void make_files(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%04u", i);
		fake_make(1, name, S_IFREG | 0600);
	}
}

struct listed {
	uint32_t n, n_attr; /* names, and those that came with attributes */
	uint64_t place;     /* of the last one */
	uint64_t max_place, max_ino;
	char last[32];
};

static void take(struct listed *l, const struct fuse_dirent *d)
{
	l->n++;
	l->place = d->off;
	l->max_place = d->off > l->max_place ? d->off : l->max_place;
	l->max_ino = d->ino > l->max_ino ? d->ino : l->max_ino;
	assert_true(d->namelen < sizeof(l->last));
	memcpy(l->last, d->name, d->namelen);
	l->last[d->namelen] = '\0';
}

/* Sends one request from that position on. Returns the number of names. */
static uint32_t list_some(struct listed *l, uint64_t fh, bool plus, uint32_t size)
{
	struct fuse_read_in in = {.fh = fh, .offset = l->place, .size = size};
	uint32_t before = l->n;
	size_t at = 0;

	assert_int_equal(
		kernel_call(&rig.k, plus ? FUSE_READDIRPLUS : FUSE_READDIR, 1, &r, ARG(in)), 0);
	assert_true(r.len <= size);
	while (at < r.len) {
		const struct fuse_direntplus *p = (const void *)(r.data + at);

		if (plus) {
			take(l, &p->dirent);
			l->n_attr += p->entry_out.nodeid != 0;
			at += FUSE_DIRENTPLUS_SIZE(p);
		} else {
			const struct fuse_dirent *d = (const void *)(r.data + at);

			take(l, d);
			at += FUSE_DIRENT_SIZE(d);
		}
	}
	return l->n - before;
}

static struct listed list_all(uint64_t fh, bool plus)
{
	struct listed l = {.n = 0};

	while (list_some(&l, fh, plus, 4096) > 0)
		;
	return l;
}

static void an_empty_one(void)
{
	struct listed l = list_all(kernel_opendir(&rig.k, 1), false);

	assert_int_equal(l.n, 2); /* . and .. */
	assert_string_equal(l.last, "..");
}
RIG_TEST(an_empty_one)

/* More than one request of the daemon returns, which is more than the kernel requests. */
static void batches(void)
{
	struct listed l;

	make_files(2500);
	l = list_all(kernel_opendir(&rig.k, 1), false);
	assert_int_equal(l.n, 2502);
	assert_string_equal(l.last, "f2499");
	assert_int_equal(fake_count("ll_readdir"), 3);
}
RIG_TEST(batches)

static void attributes(void)
{
	struct listed l = {.n = 0};
	uint64_t fh;

	make_files(10);
	fh = kernel_opendir(&rig.k, 1);
	assert_int_equal(list_some(&l, fh, true, 8192), 12);
	assert_int_equal(l.n_attr, 10); /* not . and .. */
	/* A file that other clients write to: the kernel must request its attributes when it needs
	 * them. */
	fake_find(1, "f0003")->attr.flags = ATTR_UNSETTLED;
	l = list_all(fh, true);
	assert_int_equal(l.n_attr, 9);
	/* Nothing may be cached: no attributes are sent. */
	fake.attr_us = 0;
	l = list_all(fh, true);
	assert_int_equal(l.n, 12);
	assert_int_equal(l.n_attr, 0);
}
RIG_TEST(attributes)

/* A name that this mount removed since the batch was fetched is listed, without attributes. */
static void removed_meanwhile(void)
{
	struct listed l = {.n = 0};
	uint64_t fh;

	make_files(100);
	fh = kernel_opendir(&rig.k, 1);
	list_some(&l, fh, true, 1024);
	assert_int_equal(kernel_call(&rig.k, FUSE_UNLINK, 1, &r, NAME("f0099")), 0);
	while (list_some(&l, fh, true, 4096) > 0)
		;
	assert_int_equal(l.n, 102);
	assert_int_equal(l.n_attr, 99 - 99 / (READDIRPLUS_PROBE - 1));
}
RIG_TEST(removed_meanwhile)

/* A thread that does not stat what it lists gets names alone, until it does. */
static void names_alone(void)
{
	struct listed l;
	uint64_t fh;

	make_files(READDIRPLUS_PROBE * 100);
	assert_true(READDIRPLUS_PROBE * 100 < FAKE_NODES * 2);
	fh = kernel_opendir(&rig.k, 1);
	for (uint32_t i = 0; i < READDIRPLUS_PROBES / 100; i++)
		l = list_all(fh, true);
	assert_true(l.n_attr > 0);
	l = list_all(fh, true);
	assert_int_equal(l.n, READDIRPLUS_PROBE * 100 + 2);
	assert_int_equal(l.n_attr, 0);
	rig.k.pid++; /* another thread */
	l = list_all(fh, true);
	assert_true(l.n_attr > 0);
	rig.k.pid--;
	assert_int_equal(fake.n_look_ahead, 0);
	assert_int_equal(kernel_lookup(&rig.k, 1, "f0001", &r), 0);
	assert_int_equal(fake.n_look_ahead, 1); /* attributes of its entries are prefetched */
	l = list_all(fh, true);
	assert_true(l.n_attr > 0);
}

static void run_names_alone(void **state)
{
	(void)state;
	if (READDIRPLUS_PROBE * 100 + 10 > FAKE_NODES)
		skip();
	rig.o = (struct rig_options){.ino32 = false};
	rig_run(names_alone);
}

/* telldir and seekdir: any position in any descriptor. */
static void seeking(void)
{
	struct listed l = {.n = 0}, again = {.n = 0};
	uint64_t fh;

	make_files(50);
	fh = kernel_opendir(&rig.k, 1);
	list_some(&l, fh, false, 1024);
	list_some(&again, fh, false, 1024); /* rewinddir, in the middle of a fetched batch */
	assert_int_equal(again.n, l.n);
	assert_string_equal(again.last, l.last);
	again = (struct listed){.place = l.place};
	while (list_some(&l, fh, false, 1024) > 0)
		;
	assert_int_equal(l.n, 52);
	list_some(&again, fh, false, 256);
	again.n = 0;
	fh = kernel_opendir(&rig.k, 1);
	while (list_some(&again, fh, false, 256) > 0)
		;
	assert_string_equal(again.last, "f0049");
	assert_true(again.n > 0 && again.n < 50);
	again = (struct listed){.place = 0}; /* rewinddir */
	list_some(&again, fh, false, 256);
	assert_true(again.n > 2);
}
RIG_TEST(seeking)

/* For programs with 32-bit types: every position and number fits, and no entry is missing or
 * repeated, also after a seek. */
static void places_of_32_bits(void)
{
	struct listed l, from = {.n = 0};
	uint64_t fh;

	make_files(1500);
	for (uint32_t i = 0; i < fake.n_names; i++) {
		fake.nodes[i + 1].attr.ino.v += (uint64_t)(i + 1) << 33;
		fake.names[i].ino = fake.nodes[i + 1].attr.ino.v;
	}
	fh = kernel_opendir(&rig.k, 1);
	l = list_all(fh, false);
	assert_int_equal(l.n, 1502);
	assert_true(l.max_place <= INT32_MAX);
	assert_true(l.max_ino <= UINT32_MAX);
	list_some(&from, fh, false, 8192);
	fh = kernel_opendir(&rig.k, 1);
	while (list_some(&from, fh, false, 8192) > 0)
		;
	assert_int_equal(from.n, 1502);
	assert_string_equal(from.last, "f1499");
}

static void run_places_of_32_bits(void **state)
{
	(void)state;
	rig.o = (struct rig_options){.ino32 = true};
	rig_run(places_of_32_bits);
}

static void errors(void)
{
	struct fuse_read_in in = {.fh = kernel_opendir(&rig.k, 1), .offset = 2, .size = 4096};
	struct fuse_release_in release = {.fh = in.fh};
	struct fuse_fsync_in sync = {.fh = in.fh};

	make_files(2000);
	assert_int_equal(fake.n_held, 1);
	fake_fail("ll_readdir", -LE_ACCES);
	assert_int_equal(kernel_call(&rig.k, FUSE_READDIR, 1, &r, ARG(in)), EACCES);
	assert_int_equal(kernel_call(&rig.k, FUSE_READDIR, 1, &r, ARG(in)), 0);
	assert_int_equal(kernel_call(&rig.k, FUSE_FSYNCDIR, 1, &r, ARG(sync)), 0);
	assert_int_equal(kernel_call(&rig.k, FUSE_RELEASEDIR, 1, &r, ARG(release)), 0);
	assert_int_equal(fake.n_held, 0);
	/* An unknown number, as from a previous daemon: the listing starts anew. */
	assert_int_equal(kernel_call(&rig.k, FUSE_READDIR, 1, &r, ARG(in)), 0);
	assert_true(r.len > 0);
	assert_int_equal(kernel_call(&rig.k, FUSE_RELEASEDIR, 1, &r, ARG(release)), 0);
	assert_int_equal(fake.n_held, 0);
}
RIG_TEST(errors)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_an_empty_one),      cmocka_unit_test(run_batches),
		cmocka_unit_test(run_attributes),        cmocka_unit_test(run_removed_meanwhile),
		cmocka_unit_test(run_names_alone),       cmocka_unit_test(run_seeking),
		cmocka_unit_test(run_places_of_32_bits), cmocka_unit_test(run_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
