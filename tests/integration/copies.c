/*
 * Moves data by the client library and says what of it the library copied; for test_copies.py.
 *
 *   copies CONF FILE slots|fragment|memory
 *
 * slots: whole chunks from registered slots (ll_write) and back (ll_read); fragment: a part of a
 * block over the file that slots made; memory: from and to memory of the caller. What was written
 * is read again and compared. Prints one line, "moved N copied M".
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/leat_impl.h"
#include "common/base/assert.h"
#include "common/base/payload.h"

#define UNIT     LL_IO_MAX
#define N_UNITS  8u
#define FRAGMENT_OFF 1000u
#define FRAGMENT_LEN 5001u

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

static int run(struct job *j, const char *what)
{
	j->len = UNIT;
	j->n = N_UNITS;
	if (strcmp(what, "memory") == 0)
		return by_memory(j);
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
		fprintf(stderr, "usage: copies CONF FILE slots|fragment|memory\n");
		return 2;
	}
	int rc = leat_open_fs(argv[1], &o, &j.fs);
	if (rc == 0)
		rc = leat_open(j.fs, argv[2], O_RDWR | O_CREAT | O_DIRECT, 0600, &j.file);
	uint64_t before = payload_copied();
	if (rc == 0)
		rc = run(&j, argv[3]);
	printf("moved %llu copied %llu\n", (unsigned long long)j.moved,
	       (unsigned long long)(payload_copied() - before));
	if (j.file != NULL)
		(void)leat_close(j.file);
	if (j.fs != NULL)
		leat_close_fs(j.fs);
	if (rc < 0)
		fprintf(stderr, "copies: %s\n", leat_strerror(rc));
	return rc < 0 ? 1 : 0;
}
