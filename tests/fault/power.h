/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the drivers of the power-loss tests: a loop with the real env, marks in the journal of
 * powerfs, and reading the marks. A driver runs a workload on the test file system and marks
 * acknowledged operations; later it opens what a power cut left and compares.
 */
#ifndef LEAT_TESTS_FAULT_POWER_H
#define LEAT_TESTS_FAULT_POWER_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define die(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static inline void must(int rc, const char *what)
{
	if (rc < 0)
		die("%s: %s", what, status_text(rc));
}

struct power_main {
	struct env *env;
	void (*fn)(struct env *env, void *arg);
	void *arg;
};

static inline void power_fiber(void *arg)
{
	struct power_main *m = arg;

	m->fn(m->env, m->arg);
	loop_stop(loop_self());
}

/* Runs fn as a fiber. Returns when it and all fibers that it spawned have ended. */
static inline void power_run(void (*fn)(struct env *env, void *arg), void *arg)
{
	struct env_real_options eo = {.n_workers = 2, .kv_open = kv_rocksdb_open};
	struct loop_options lo = {.name = "power"};
	struct power_main m = {.fn = fn, .arg = arg};
	struct loop *l;

	must(env_real_create(&eo, &m.env), "env");
	must(loop_create(m.env, &lo, &l), "loop");
	must(fiber_spawn_on(l, "main", power_fiber, &m), "fiber");
	loop_run(l);
	loop_destroy(l);
	env_real_destroy(m.env);
}

static inline int power_mark_open(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		die("%s: %m", path);
	return fd;
}

/* Marks in the journal that operation n of worker `who` has been acknowledged. */
static inline void power_mark(int fd, unsigned int who, unsigned int n)
{
	char line[64];
	int len = snprintf(line, sizeof(line), "%u %u\n", who, n);

	if (write(fd, line, (size_t)len) != len)
		die("mark: %m");
}

/* Reads the last number that each worker marked. */
static inline void power_marks_read(const char *path, unsigned int *last, unsigned int n_workers)
{
	FILE *f = fopen(path, "r");
	unsigned int who, n;

	if (!f)
		die("%s: %m", path);
	while (fscanf(f, "%u %u", &who, &n) == 2)
		if (who < n_workers && n > last[who])
			last[who] = n;
	fclose(f);
}

/* splitmix64: every operation follows from its number. */
static inline uint64_t power_hash(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

#endif
