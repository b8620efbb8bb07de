/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_wal_ahead.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/kv/kv_wal.h"

#define AHEAD_BYTES (1u << 20)
#define LEFT_MIN    (64u << 10) /* zeros are written when fewer are left */
/* RocksDB begins a log when a piece of its write buffer is full (some thousand commits). The folder
 * is searched for a new log once in so many batches. */
#define POLL_EVERY 32u
#define PIECE      65536u
#define N_PIECES   (AHEAD_BYTES / PIECE)

void kv_wal_ahead_init(struct kv_wal_ahead *w, const char *path)
{
	*w = (struct kv_wal_ahead){.path = path, .fd = -1};
}

void kv_wal_ahead_fini(struct kv_wal_ahead *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

static uint64_t newest_log(const char *path)
{
	DIR *d = opendir(path);
	uint64_t newest = 0;

	if (d == NULL)
		return 0;
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		char *end;
		uint64_t number = strtoull(e->d_name, &end, 10);

		if (end != e->d_name && strcmp(end, ".log") == 0 && number > newest)
			newest = number;
	}
	closedir(d);
	return newest;
}

static void look(struct kv_wal_ahead *w)
{
	uint64_t number = newest_log(w->path);
	char file[4096 + 32];
	struct stat st;

	if (number == 0 || (number == w->number && w->fd >= 0))
		return;
	kv_wal_ahead_fini(w);
	int len = snprintf(file, sizeof(file), "%s/%06llu.log", w->path,
			   (unsigned long long)number);
	if (len >= (int)sizeof(file))
		return;
	w->fd = open(file, O_WRONLY | O_CLOEXEC);
	if (w->fd < 0 || fstat(w->fd, &st) < 0) {
		kv_wal_ahead_fini(w);
		return;
	}
	w->number = number;
	w->at = w->end = (uint64_t)st.st_size;
}

static void write_zeros(struct kv_wal_ahead *w)
{
	static const uint8_t zeros[PIECE];
	struct iovec iov[N_PIECES];
	struct stat st;

	/* at is an estimate: the file may be longer. */
	if (fstat(w->fd, &st) < 0)
		return;
	if ((uint64_t)st.st_size > w->end)
		w->at = w->end = (uint64_t)st.st_size;
	for (uint32_t i = 0; i < N_PIECES; i++)
		iov[i] = (struct iovec){(void *)zeros, PIECE};
	ssize_t n = pwritev(w->fd, iov, N_PIECES, (off_t)w->end);
	if (n > 0)
		w->end += (uint64_t)n;
}

void kv_wal_ahead_write(struct kv_wal_ahead *w, uint64_t bytes)
{
	if (w->n_until_poll == 0) {
		look(w);
		w->n_until_poll = POLL_EVERY;
	}
	w->n_until_poll--;
	w->at += bytes + (bytes / KV_WAL_BLOCK_SIZE + 2) * KV_WAL_HEAD_SIZE;
	if (w->fd >= 0 && w->at + LEFT_MIN > w->end)
		write_zeros(w);
}
