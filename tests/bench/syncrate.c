/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syncrate FILE [SECONDS [THREADS]]: the best that the disk allows to a server that replies only
 * when a change is durable. Each thread's "operation" writes 4 KiB after the last one to a file
 * that was written before, and is done when a sync that began later has ended. One sync at a time
 * serves all that wait for it (group commit). Prints operations and syncs per second.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK     4096
#define N_BLOCKS  4096
#define N_THREADS 64

static struct {
	int fd;
	double until;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* guarded by lock: the batch being collected, the last durable one; operations and syncs */
	uint64_t open, durable, n_ops, n_syncs, at;
	bool syncing;
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .open = 1};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "syncrate: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* Called with the lock, which is released meanwhile. */
static void sync_batch(void)
{
	uint64_t batch = g.open++;
	uint64_t at = g.at++ % N_BLOCKS;
	char block[BLOCK];

	g.syncing = true;
	pthread_mutex_unlock(&g.lock);
	memset(block, (int)batch, sizeof(block));
	must(pwrite(g.fd, block, BLOCK, (off_t)at * BLOCK) == BLOCK, "write");
	must(fdatasync(g.fd) == 0, "sync");
	pthread_mutex_lock(&g.lock);
	g.syncing = false;
	g.durable = batch;
	g.n_syncs++;
	pthread_cond_broadcast(&g.cond);
}

static void *worker(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&g.lock);
	while (now_s() < g.until) {
		uint64_t mine = g.open;

		while (g.durable < mine) {
			if (g.syncing)
				pthread_cond_wait(&g.cond, &g.lock);
			else
				sync_batch();
		}
		g.n_ops++;
	}
	pthread_mutex_unlock(&g.lock);
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	int n = argc > 3 ? atoi(argv[3]) : 1;
	pthread_t threads[N_THREADS];
	char block[BLOCK] = {1};

	if (argc < 2 || n < 1 || n > N_THREADS) {
		fprintf(stderr, "usage: syncrate FILE [SECONDS [THREADS]]\n");
		return 2;
	}
	g.fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(g.fd >= 0, argv[1]);
	for (int i = 0; i < N_BLOCKS; i++)
		must(write(g.fd, block, BLOCK) == BLOCK, "write");
	must(fsync(g.fd) == 0, "sync");
	double start = now_s();
	g.until = start + seconds;
	for (int i = 0; i < n; i++)
		must(pthread_create(&threads[i], NULL, worker, NULL) == 0, "thread");
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	double took = now_s() - start;
	printf("%.0f %.0f\n", (double)g.n_ops / took, (double)g.n_syncs / took);
	unlink(argv[1]);
	return 0;
}
