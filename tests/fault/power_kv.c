/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power_kv run STORE MARK OPS [nosync]     workers commit batches and mark each acknowledgement
 * power_kv verify STORE MARKS              checks that every worker's keys are as its last
 *                                          acknowledged batch left them, or the next: wholly
 *
 * A worker owns KEYS keys and a row with the number of its last batch. Batch n puts, deletes or
 * range-deletes some; the values of the keys after it follow from n alone.
 */
#include "tests/fault/power.h"

#include "common/base/log.h"

#define WORKERS   6u
#define KEYS      24u
#define KEY_SIZE  32u
#define VALUE_MAX 3000u

struct run {
	const char *store, *mark, *marks;
	unsigned int ops;
	bool nosync;
	int mark_fd;
	struct kv *kv;
	struct latch left;
};

struct worker {
	struct run *run;
	unsigned int who;
};

static struct kv_options options(const struct run *r)
{
	/* Small buffers make the workload flush and compact. */
	return (struct kv_options){.create = true,
				   .cache_size = 1 << 20,
				   .write_buffer_size = 96 << 10,
				   .no_sync = r->nosync};
}

static size_t key_of(char *key, unsigned int who, unsigned int k)
{
	return (size_t)snprintf(key, KEY_SIZE, "w%u/%03u", who, k);
}

static size_t value_of(char *value, unsigned int who, unsigned int k, unsigned int n)
{
	size_t len = 8 + power_hash(who, k, n) % (n % 7 == 0 ? VALUE_MAX - 8 : 200);

	for (size_t i = 0; i < len; i++)
		value[i] = (char)power_hash(n, k, i / 8);
	return len;
}

/* Applies batch n to `state` (for each key the batch that wrote it, or 0 if absent), and to b. */
static void step(unsigned int who, unsigned int n, unsigned int *state, struct kv_batch *b)
{
	unsigned int puts = 1 + (unsigned int)(power_hash(who, n, 1) % 6);
	char key[KEY_SIZE], end[KEY_SIZE], value[VALUE_MAX];

	if (n % 11 == 0) {
		unsigned int from = (unsigned int)(power_hash(who, n, 2) % (KEYS - 4));

		if (b)
			kv_batch_delete_range(b, key, key_of(key, who, from), end,
					      key_of(end, who, from + 4));
		memset(&state[from], 0, 4 * sizeof(*state));
	}
	for (unsigned int i = 0; i < puts; i++) {
		unsigned int k = (unsigned int)(power_hash(who, n, 10 + i) % KEYS);

		if (power_hash(who, n, 20 + i) % 4 == 0) {
			if (b)
				kv_batch_delete(b, key, key_of(key, who, k));
			state[k] = 0;
			continue;
		}
		if (b)
			kv_batch_put(b, key, key_of(key, who, k), value,
				     value_of(value, who, k, n));
		state[k] = n;
	}
	if (b)
		kv_batch_put(b, key, (size_t)snprintf(key, KEY_SIZE, "n%u", who), &n, sizeof(n));
}

static void work(void *arg)
{
	struct worker *w = arg;
	struct kv_batch *b = kv_batch_create();
	unsigned int state[KEYS] = {0};

	for (unsigned int n = 1; n <= w->run->ops; n++) {
		kv_batch_clear(b);
		step(w->who, n, state, b);
		must(kv_commit(w->run->kv, b, true), "commit");
		power_mark(w->run->mark_fd, w->who, n);
		if (power_hash(w->who, n, 3) % 4 == 0)
			must(fiber_sleep_us(300), "sleep");
	}
	kv_batch_destroy(b);
	latch_done(&w->run->left);
}

static void run(struct env *env, void *arg)
{
	struct run *r = arg;
	struct kv_options o = options(r);
	struct worker w[WORKERS];

	r->mark_fd = power_mark_open(r->mark);
	must(kv_open(env, r->store, &o, &r->kv), "open");
	latch_init(&r->left, WORKERS);
	for (unsigned int i = 0; i < WORKERS; i++) {
		w[i] = (struct worker){r, i};
		must(fiber_spawn("worker", work, &w[i]), "spawn");
	}
	latch_wait(&r->left);
	kv_close(r->kv);
	close(r->mark_fd);
}

static void check_worker(struct kv *kv, unsigned int who, unsigned int acknowledged)
{
	unsigned int state[KEYS] = {0}, n = 0;
	char key[KEY_SIZE], want[VALUE_MAX];
	struct kv_value v;
	int rc = kv_get(kv, key, (size_t)snprintf(key, KEY_SIZE, "n%u", who), &v);

	if (rc == 0) {
		memcpy(&n, v.data, sizeof(n));
		kv_value_fini(&v);
	} else if (rc != -LE_NOENT) {
		die("worker %u: %s", who, status_text(rc));
	}
	if (n < acknowledged || n > acknowledged + 1)
		die("worker %u: batch %u was acknowledged, the store has %u", who, acknowledged, n);
	for (unsigned int i = 1; i <= n; i++)
		step(who, i, state, NULL);
	for (unsigned int k = 0; k < KEYS; k++) {
		rc = kv_get(kv, key, key_of(key, who, k), &v);
		if (rc == -LE_NOENT && state[k] == 0)
			continue;
		must(rc, key);
		size_t len = value_of(want, who, k, state[k]);
		if (state[k] == 0 || v.len != len || memcmp(v.data, want, len) != 0)
			die("%s after batch %u: not what batch %u wrote", key, n, state[k]);
		kv_value_fini(&v);
	}
}

static void verify(struct env *env, void *arg)
{
	struct run *r = arg;
	struct kv_options o = options(r);
	struct kv_batch *b = kv_batch_create();
	unsigned int last[WORKERS] = {0};

	power_marks_read(r->marks, last, WORKERS);
	must(kv_open(env, r->store, &o, &r->kv), "open after the cut");
	for (unsigned int i = 0; i < WORKERS; i++)
		check_worker(r->kv, i, last[i]);
	/* The store accepts new batches. */
	kv_batch_put(b, "z", 1, "z", 1);
	must(kv_commit(r->kv, b, true), "commit after the cut");
	kv_batch_destroy(b);
	kv_close(r->kv);
}

int main(int argc, char **argv)
{
	struct run r = {0};

	log_init("power_kv", LOG_ERROR);
	if (argc >= 5 && strcmp(argv[1], "run") == 0) {
		r = (struct run){.store = argv[2],
				 .mark = argv[3],
				 .ops = (unsigned int)atoi(argv[4]),
				 .nosync = argc > 5};
		power_run(run, &r);
		return 0;
	}
	if (argc == 4 && strcmp(argv[1], "verify") == 0) {
		r = (struct run){.store = argv[2], .marks = argv[3]};
		power_run(verify, &r);
		return 0;
	}
	fprintf(stderr, "usage: power_kv run STORE MARK OPS [nosync] | verify STORE MARKS\n");
	return 2;
}
