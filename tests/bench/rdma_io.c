/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1 MiB reads and writes through the client library, a number of them concurrently, directly from
 * and to registered slots (ll_read, ll_write), then from and to memory of the caller (leat_pread),
 * which costs a copy. The file is opened with O_DIRECT: without read-ahead and write-back.
 *
 *   rdma_io CONF FILE [MIB, default 256 [AT ONCE, default 8 [WHAT, or all
 *           [client parameter, as transport=tcp]]]]
 *
 * WHAT is read, write (the file must exist), read-by-copy or write-by-copy. Prints lines "io WHAT X
 * MB/s, C copied": what the library copied per byte.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/leat_impl.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"

#define UNIT LL_IO_MAX

struct io {
	struct leat_fs *fs;
	struct leat_file *file;
	uint64_t n_units, next;
	uint32_t at_once;
	bool write;
	int rc;
	struct latch done;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int one(struct io *io, struct slot *s, uint64_t unit)
{
	struct slot_vec v = {s, 0, UNIT};
	struct ll_data data;

	if (io->write) {
		int64_t n = ll_write(io->file->ll, unit * UNIT, &v, 1);
		return n < 0 ? (int)n : n == UNIT ? 0 : -LE_IO;
	}
	TRY(ll_read(io->file->ll, unit * UNIT, UNIT, &data));
	int rc = data.len == UNIT ? 0 : -LE_IO;
	ll_data_release(&data);
	return rc;
}

static void mover(void *arg)
{
	struct io *io = arg;
	struct slot *s = NULL;
	int rc = io->write ? slot_get(ll_slots(io->fs->client), NO_DEADLINE, &s) : 0;

	if (rc == 0 && s != NULL)
		memset(s->data, 0x5a, UNIT);
	while (rc == 0 && io->rc == 0 && io->next < io->n_units)
		rc = one(io, s, io->next++);
	if (rc < 0)
		io->rc = rc;
	slot_unref(s);
	latch_done(&io->done);
}

static void say(const struct io *io, const char *what, double since_s, uint64_t copied)
{
	double bytes = (double)(io->n_units * UNIT);

	printf("io %s %.1f MB/s, %.3f copied\n", what, bytes / 1e6 / (now_s() - since_s),
	       (double)(copy_counter_bytes() - copied) / bytes);
}

static void move_all(void *arg)
{
	struct io *io = arg;

	io->next = 0;
	io->rc = 0;
	latch_init(&io->done, io->at_once);
	for (uint32_t i = 0; i < io->at_once; i++)
		ASSERT(fiber_spawn("mover", mover, io) == 0);
	latch_wait(&io->done);
}

static int slots(struct io *io, bool writing)
{
	uint64_t n_units = io->n_units;

	/* Touches the pages: mapping them at the first access costs more than a copy. */
	io->write = writing;
	io->n_units = n_units / 4;
	TRY(loop_call(io->fs->loop, "move", move_all, io));
	io->n_units = n_units;
	TRY(io->rc);
	double t = now_s();
	uint64_t copied = copy_counter_bytes();
	TRY(loop_call(io->fs->loop, "move", move_all, io));
	TRY(io->rc);
	say(io, writing ? "write" : "read", t, copied);
	return 0;
}

static int memory(struct io *io, bool writing)
{
	uint32_t len = io->at_once * UNIT;
	uint8_t *buf = malloc(len);
	double t = now_s();
	uint64_t copied = copy_counter_bytes();
	int64_t n = buf != NULL ? 1 : -LE_NOMEM;

	for (uint64_t at = 0; n > 0 && at < io->n_units * UNIT; at += (uint64_t)n)
		n = writing ? leat_pwrite(io->file, buf, len, at)
			    : leat_pread(io->file, buf, len, at);
	free(buf);
	if (n <= 0)
		return n < 0 ? (int)n : -LE_IO;
	say(io, writing ? "write-by-copy" : "read-by-copy", t, copied);
	return 0;
}

static int measure(struct io *io, const char *only)
{
	static const struct {
		const char *name;
		int (*fn)(struct io *io, bool writing);
		bool writing;
	} all[] = {
		{"make", slots, true}, /* makes the file; the next write replaces its content */
		{"write", slots, true},
		{"read", slots, false},
		{"write-by-copy", memory, true},
		{"read-by-copy", memory, false},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(only, "all") == 0 || strcmp(only, all[i].name) == 0)
			TRY(all[i].fn(io, all[i].writing));
	return 0;
}

int main(int argc, char **argv)
{
	struct io io = {.n_units = argc > 3 ? strtoull(argv[3], NULL, 10) : 256,
			.at_once = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 8};
	const char *params[] = {argc > 6 ? argv[6] : NULL, NULL};
	struct leat_options o = {.size = sizeof(o), .params = params};

	if (argc < 3 || io.at_once == 0 || io.n_units < io.at_once) {
		fprintf(stderr, "usage: rdma_io CONF FILE [MIB [AT ONCE [WHAT [PARAMETER]]]]\n");
		return 2;
	}
	io.n_units -= io.n_units % io.at_once;
	int rc = leat_open_fs(argv[1], &o, &io.fs);
	if (rc == 0) {
		rc = leat_open(io.fs, argv[2], O_RDWR | O_CREAT | O_DIRECT, 0600, &io.file);
		if (rc == 0)
			rc = measure(&io, argc > 5 ? argv[5] : "all");
		if (io.file != NULL)
			(void)leat_close(io.file);
		leat_close_fs(io.fs);
	}
	if (rc < 0)
		fprintf(stderr, "rdma_io: %s\n", leat_strerror(rc));
	return rc < 0 ? 1 : 0;
}
