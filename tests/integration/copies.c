/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves data through the client library and prints how much the library copied. See test_copies.py.
 *
 *   copies CONF FILE slots|fragment|memory|many|loader
 *
 * slots: writes whole chunks from registered slots (ll_write) and reads them back (ll_read).
 * fragment: writes a part of a block over that file. memory: writes from memory of the caller and
 * reads to it. many: reads small ranges of that file in one call (ll_pread_batch), to memory of the
 * caller. loader: delivers an epoch of batches of that file, SAMPLE bytes each. Everything written
 * is read again and compared. Prints one line, "moved N copied M".
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <leat/leat_loader.h>

#include "client/leat_impl.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"

#define UNIT         LL_IO_MAX
#define N_UNITS      8u
#define FRAGMENT_OFF 1000u
#define FRAGMENT_LEN 5001u
#define N_MANY       150u
#define SAMPLE       65536u

struct job {
	struct leat_fs *fs;
	struct leat_file *file;
	uint64_t off, moved;
	uint32_t len, n;
	int rc;
};

static void paint(uint8_t *p, uint32_t len, uint64_t off)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)((off + i) * 31 + ((off + i) >> 12));
}

static bool same(const struct ll_data *data, const uint8_t *want)
{
	for (uint32_t i = 0; i < data->n; i++) {
		const struct slot_vec *v = &data->vec[i];
		if (memcmp(v->slot->data + v->off, want, v->len) != 0)
			return false;
		want += v->len;
	}
	return true;
}

static int there_and_back(struct job *j, struct slot *s, uint64_t off)
{
	struct slot_vec v = {s, 0, j->len};
	struct ll_data data;

	paint(s->data, j->len, off);
	if (ll_write(j->file->ll, off, &v, 1) != j->len)
		return -LE_IO;
	TRY(ll_read(j->file->ll, off, j->len, &data));
	int rc = data.len == j->len && same(&data, s->data) ? 0 : -LE_IO;
	ll_data_release(&data);
	j->moved += 2 * j->len;
	return rc;
}

static void by_slots(void *arg)
{
	struct job *j = arg;
	struct slot *s = NULL;

	j->rc = slot_get(ll_slots(j->fs->client), NO_DEADLINE, &s);
	for (uint32_t i = 0; j->rc == 0 && i < j->n; i++)
		j->rc = there_and_back(j, s, j->off + (uint64_t)i * j->len);
	slot_unref(s);
}

/* Odd lengths at odd offsets. Some cross the end of a block, none the end of a chunk. */
static void place(struct ll_part *p, uint32_t i)
{
	p->len = 1 + i * 53 % 9000;
	p->off = (uint64_t)(i % N_UNITS) * UNIT + (uint64_t)i * 7919 % (UNIT - p->len);
}

static int check_many(struct job *j, const struct ll_part *parts, uint8_t *want)
{
	for (uint32_t i = 0; i < N_MANY; i++) {
		paint(want, parts[i].len, parts[i].off);
		if (parts[i].done != parts[i].len || memcmp(parts[i].buf, want, parts[i].len) != 0)
			return -LE_IO;
		j->moved += parts[i].len;
	}
	return 0;
}

static void by_many(void *arg)
{
	struct job *j = arg;
	struct client *c = j->fs->client;
	struct ll_part parts[N_MANY];
	struct ll_stats before, after;
	uint8_t *space = calloc(N_MANY + 1, FRAGMENT_LEN * 2);

	j->rc = space != NULL ? 0 : -LE_NOMEM;
	for (uint32_t i = 0; i < N_MANY; i++) {
		parts[i] =
			(struct ll_part){.file = j->file->ll, .buf = space + i * FRAGMENT_LEN * 2};
		place(&parts[i], i);
	}
	/* ll_pread_batch uses existing connections only, so open one to each server first. */
	for (uint32_t i = 0; i < N_UNITS && j->rc == 0; i++)
		j->rc = ll_pread(j->file->ll, space, 1, (uint64_t)i * UNIT) == 1 ? 0 : -LE_IO;
	j->moved = N_UNITS;
	ll_stats(c, &before);
	if (j->rc == 0)
		ll_pread_batch(c, parts, N_MANY);
	if (j->rc == 0)
		j->rc = check_many(j, parts, space + N_MANY * FRAGMENT_LEN * 2);
	ll_stats(c, &after);
	/* The batch took few requests, all of them batch requests. */
	if (after.many_ops == before.many_ops || after.many_ops - before.many_ops > N_MANY / 4)
		j->rc = -LE_NOTSUP;
	free(space);
}

static int by_memory(struct job *j)
{
	uint8_t *out = malloc(UNIT), *in = calloc(1, UNIT);
	int rc = out != NULL && in != NULL ? 0 : -LE_NOMEM;

	if (rc == 0) {
		paint(out, UNIT, 0);
		if (leat_pwrite(j->file, out, UNIT, 0) != UNIT ||
		    leat_pread(j->file, in, UNIT, 0) != UNIT || memcmp(in, out, UNIT) != 0)
			rc = -LE_IO;
		j->moved += 2 * UNIT;
	}
	free(out);
	free(in);
	return rc;
}

static int check_batch(struct job *j, const struct leat_batch *b, const char *field,
		       uint8_t *want)
{
	struct leat_view v = {.size = sizeof(v)};

	TRY(leat_batch_field(b, field, &v));
	for (uint64_t i = 0; i < v.n; i++) {
		paint(want, SAMPLE, leat_batch_ids(b)[i] * SAMPLE);
		if (v.lengths[i] != SAMPLE || memcmp(v.base + v.offsets[i], want, SAMPLE) != 0)
			return -LE_IO;
		j->moved += SAMPLE;
	}
	return 0;
}

static int read_batches(struct job *j, struct leat_dataset *ds, uint8_t *want)
{
	struct leat_loader_options o = {
		.size = sizeof(o), .batch = 16, .seed = 1, .tail = "shorter", .epochs = 1};
	struct leat_loader *loader;
	struct leat_batch *b;

	TRY(leat_loader_open(ds, &o, &loader));
	int rc = leat_next(loader, &b);
	while (rc == 1) {
		rc = check_batch(j, b, leat_dataset_field(ds, 0), want);
		leat_batch_unref(b);
		if (rc == 0)
			rc = leat_next(loader, &b);
	}
	leat_loader_close(loader);
	return rc;
}

static int by_loader(struct job *j, const char *path)
{
	char format[24], pattern[256];
	struct leat_dataset_options o = {.size = sizeof(o), .fs = j->fs, .format = format};
	uint8_t *want = malloc(SAMPLE);
	struct leat_dataset *ds;
	int rc = want != NULL ? 0 : -LE_NOMEM;

	snprintf(format, sizeof(format), "fixed:%u", SAMPLE);
	snprintf(pattern, sizeof(pattern), "%s*", path);
	if (rc == 0)
		rc = leat_dataset_open(pattern, &o, &ds);
	if (rc == 0) {
		rc = read_batches(j, ds, want);
		leat_dataset_close(ds);
	}
	if (rc < 0)
		fprintf(stderr, "copies: %s\n", leat_last_error()->message);
	free(want);
	return rc;
}

static int run(struct job *j, const char *path, const char *what)
{
	j->len = UNIT;
	j->n = N_UNITS;
	if (strcmp(what, "memory") == 0)
		return by_memory(j);
	if (strcmp(what, "loader") == 0)
		return by_loader(j, path);
	if (strcmp(what, "many") == 0) {
		TRY(loop_call(j->fs->loop, "many", by_many, j));
		return j->rc;
	}
	if (strcmp(what, "fragment") == 0) {
		j->off = FRAGMENT_OFF;
		j->len = FRAGMENT_LEN;
		j->n = 1;
	}
	TRY(loop_call(j->fs->loop, "move", by_slots, j));
	return j->rc;
}

int main(int argc, char **argv)
{
	struct leat_options o = {.size = sizeof(o)};
	struct job j = {0};

	if (argc != 4) {
		fprintf(stderr, "usage: copies CONF FILE slots|fragment|memory|many|loader\n");
		return 2;
	}
	int rc = leat_open_fs(argv[1], &o, &j.fs);
	if (rc == 0)
		rc = leat_open(j.fs, argv[2], O_RDWR | O_CREAT | O_DIRECT, 0600, &j.file);
	uint64_t before = copy_counter_bytes();
	if (rc == 0)
		rc = run(&j, argv[2], argv[3]);
	printf("moved %llu copied %llu\n", (unsigned long long)j.moved,
	       (unsigned long long)(copy_counter_bytes() - before));
	if (j.file != NULL)
		(void)leat_close(j.file);
	if (j.fs != NULL)
		leat_close_fs(j.fs);
	if (rc < 0)
		fprintf(stderr, "copies: %s\n", leat_strerror(rc));
	return rc < 0 ? 1 : 0;
}
