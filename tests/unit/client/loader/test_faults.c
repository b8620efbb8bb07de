/* SPDX-License-Identifier: Apache-2.0 */
/* Staged copies with random damage: each delivered sample has its original content. With the
 * source, all samples are delivered; without it each missing sample is named or counted. The seed
 * of a failure is printed.
 * timeout: 120 */
#include "client/include/leat/leat_loader.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/leat/leat_stage.h"
#include "common/base/hmap.h"
#include "common/base/status.h"
#include "tests/lib/folder.h"

#define FILES   90u
#define SEEDS   16u
#define LEN_MAX 300000u

enum planted_bug {
	SOUND,
	FLIPPED,
	CUT,
	GONE
};

struct world {
	char root[FOLDER_MAX], src[96], copy[4096];
	enum planted_bug faults[FILES];
	uint64_t where[FILES]; /* of a flipped bit's byte */
	uint64_t random;
	bool alone; /* without the source */
};

static uint64_t draw(struct world *w, uint64_t below)
{
	w->random = hash_u64(w->random + 1);
	return w->random % below;
}

/* Some are empty, most are within a block, some cross several. */
static uint32_t length(uint32_t f)
{
	uint32_t x = (uint32_t)hash_u64(f);
	return f % 11 == 0 ? 0 : f % 9 == 0 ? 100000 + x % 200000 : x % 9000 + 1;
}

static uint8_t byte_of(uint32_t f, uint32_t i)
{
	return (uint8_t)(hash_u64_2(f, i / 8) >> (i % 8 * 8));
}

static void put_files(const struct world *w)
{
	static uint8_t bytes[LEN_MAX];
	char path[160];
	for (uint32_t f = 0; f < FILES; f++) {
		for (uint32_t i = 0; i < length(f); i++)
			bytes[i] = byte_of(f, i);
		snprintf(path, sizeof(path), "%s/%03u", w->src, f);
		FILE *out = fopen(path, "w");
		assert_non_null(out);
		assert_int_equal(fwrite(bytes, 1, length(f), out), length(f));
		assert_int_equal(fclose(out), 0);
	}
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "faults", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	put_files(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	remove_folder(w->root);
	free(w);
	return 0;
}

/* A fresh copy, READY. */
static void stage(struct world *w, uint32_t seed)
{
	char to[128];
	struct leat_stage_options o = {.size = sizeof(o), .source = w->src, .to = to};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	snprintf(to, sizeof(to), "%s/to-%u", w->root, seed);
	assert_int_equal(mkdir(to, 0755), 0);
	r->size = sizeof(*r);
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(w->copy, r->path, sizeof(w->copy));
	free(r);
}

static void path_of(const struct world *w, uint32_t f, char ret_path[4200])
{
	const char *data = strstr(w->copy, "/data");
	snprintf(ret_path, 4200, "%s%s/%03u", w->copy, data && !data[5] ? "" : "/data", f);
}

static void damage(struct world *w, uint32_t f)
{
	char path[4200];
	uint8_t byte;
	uint32_t len = length(f);
	path_of(w, f, path);
	assert_int_equal(chmod(path, 0600), 0);
	w->faults[f] = len == 0 ? SOUND : (enum planted_bug)(1 + draw(w, 3));
	w->where[f] = len ? draw(w, len) : 0;
	if (w->faults[f] == FLIPPED) {
		int fd = open(path, O_RDWR);
		assert_int_equal(pread(fd, &byte, 1, (off_t)w->where[f]), 1);
		byte ^= (uint8_t)(1u << draw(w, 8));
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)w->where[f]), 1);
		close(fd);
	} else if (w->faults[f] == CUT) {
		assert_int_equal(truncate(path, (off_t)w->where[f]), 0);
	} else if (w->faults[f] == GONE) {
		assert_int_equal(unlink(path), 0);
	}
}

static void damage_some(struct world *w)
{
	uint64_t n = draw(w, 12);
	memset(w->faults, 0, sizeof(w->faults));
	for (uint64_t i = 0; i < n; i++) {
		uint32_t f = (uint32_t)draw(w, FILES);
		if (w->faults[f] == SOUND)
			damage(w, f);
	}
}

static void check_batch(const struct world *w, const struct leat_batch *b, uint32_t *seen)
{
	struct leat_view v = {.size = sizeof(v)};
	assert_int_equal(leat_batch_field(b, "data", &v), 0);
	assert_true(v.verified);
	for (uint32_t i = 0; i < leat_batch_len(b); i++) {
		uint32_t f = (uint32_t)leat_batch_ids(b)[i];
		assert_true(!w->alone || w->faults[f] == SOUND);
		assert_int_equal(v.lengths[i], length(f));
		for (uint32_t k = 0; k < length(f); k++) {
			if (v.base[v.offsets[i] + k] != byte_of(f, k))
				fail_msg("file %u byte %u", f, k);
		}
		seen[f]++;
	}
}

/* The error names the copy, and one of its damaged files. */
static void check_error(const struct world *w, int rc)
{
	static const int status[] = {0, -LE_CORRUPT, -LE_NODATA, -LE_NOENT};
	const struct leat_error *e = leat_last_error();
	const char *name = strrchr(e->path, '/');
	uint32_t f = (uint32_t)strtoul(name ? name + 1 : e->path, NULL, 10);
	assert_int_equal(e->status, rc);
	assert_true(e->path[0] && f < FILES && w->faults[f] != SOUND);
	assert_int_equal(rc, status[w->faults[f]]);
	assert_string_equal(e->origin, "local");
	assert_true(e->offset < length(f));
	if (w->faults[f] == FLIPPED)
		assert_true(e->offset <= w->where[f]);
}

/* Flipped bits are repaired in place; a missing or truncated file needs `stage in`. */
static void check_healed(const struct world *w)
{
	char path[4200];
	for (uint32_t f = 0; f < FILES; f++) {
		uint8_t byte;
		if (w->faults[f] != FLIPPED)
			continue;
		path_of(w, f, path);
		int fd = open(path, O_RDONLY);
		assert_int_equal(pread(fd, &byte, 1, (off_t)w->where[f]), 1);
		close(fd);
		assert_int_equal(byte, byte_of(f, (uint32_t)w->where[f]));
	}
}

static void run(struct world *w, int on_error)
{
	static const char *const orders[] = {"global", "window:7", "sequential", "file"};
	struct leat_dataset_options o = {.size = sizeof(o), .threads = 1 + (uint32_t)draw(w, 3)};
	struct leat_loader_options lo = {.size = sizeof(lo),
					 .order = orders[draw(w, 4)],
					 .seed = draw(w, 1000),
					 .tail = "shorter",
					 .batch = 1 + (uint32_t)draw(w, 40),
					 .depth = draw(w, 2) ? 0 : 2,
					 .epochs = 1,
					 .on_error = on_error};
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
	uint32_t seen[FILES] = {0}, n_bad = 0;
	int rc;
	assert_int_equal(leat_dataset_open(w->copy, &o, &ds), 0);
	/* Damage now: a copy that is not whole when it is opened is not used. */
	damage_some(w);
	assert_int_equal(leat_loader_open(ds, &lo, &ld), 0);
	while ((rc = leat_next(ld, &b)) == 1) {
		check_batch(w, b, seen);
		leat_batch_unref(b);
	}
	for (uint32_t f = 0; f < FILES; f++)
		n_bad += w->alone && w->faults[f] != SOUND;
	if (rc < 0)
		check_error(w, rc);
	assert_true(rc == 0 || (on_error == LEAT_ON_ERROR_RAISE && n_bad > 0));
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	for (uint32_t f = 0; f < FILES && rc == 0; f++)
		assert_int_equal(seen[f], !w->alone || w->faults[f] == SOUND);
	if (on_error == LEAT_ON_ERROR_SKIP)
		assert_int_equal(m.skipped, n_bad);
	else
		assert_true(rc < 0 || n_bad == 0);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	if (!w->alone)
		check_healed(w);
}

static void move_source(const struct world *w, bool away)
{
	char other[128];
	snprintf(other, sizeof(other), "%s/away", w->root);
	if (away)
		assert_int_equal(rename(w->src, other), 0);
	else
		(void)!rename(other, w->src);
}

static void test_damaged_copies(void **state)
{
	struct world *w = *state;
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		print_message("seed %u\n", seed);
		w->random = hash_u64(seed);
		stage(w, seed);
		w->alone = seed / 2 % 2;
		move_source(w, w->alone);
		run(w, seed % 2 ? LEAT_ON_ERROR_RAISE : LEAT_ON_ERROR_SKIP);
		move_source(w, false);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_damaged_copies, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
