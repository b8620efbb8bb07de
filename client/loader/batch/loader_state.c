/* SPDX-License-Identifier: Apache-2.0 */
/* The position of a loader, as JSON, and its metrics. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/loader/batch/loader.h"
#include "client/loader/batch/loader_fill.h"
#include "client/loader/gpu/cuda.h"
#include "client/loader/gpu/gds.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/last_error.h"
#include "common/base/checksum.h"

#define STATE_MAX 256

/* The name of the order, with its size for a window. */
static void order_text(const struct leat_loader *ld, char *ret_text, size_t size)
{
	if (ld->mode == ORDER_WINDOW)
		snprintf(ret_text, size, "window:%u", ld->window);
	else
		snprintf(ret_text, size, "%s", order_mode_name(ld->mode));
}

int leat_loader_state(struct leat_loader *ld, char *ret_json, size_t size)
{
	char order[32], text[STATE_MAX];
	TRY(dataset_check_pid(ld->ds)); /* a forked child lacks the thread that may hold the lock */
	order_text(ld, order, sizeof(order));
	pthread_mutex_lock(&ld->lock);
	uint64_t step = ld->want_step < ld->steps ? ld->want_step : ld->steps;
	uint64_t epoch = ld->want_epoch, pos = step * ld->deal.batch;
	pthread_mutex_unlock(&ld->lock);
	int n = snprintf(text, sizeof(text),
			 "{\"v\":%d,\"ds\":\"%016llx\",\"n\":%llu,\"order\":\"%s\",\"seed\":\"%"
			 "llu\",\"epoch\":%llu,"
			 "\"pos\":%llu,\"G\":%u}",
			 ORDER_VERSION, (unsigned long long)ld->ds->of.word,
			 (unsigned long long)ld->deal.n, order, (unsigned long long)ld->seed,
			 (unsigned long long)epoch, (unsigned long long)pos, ld->deal.batch);
	if (n < 0 || n >= STATE_MAX || (size_t)n >= size)
		return error_say(-LE_RANGE, "the state needs up to %d bytes", STATE_MAX);
	memcpy(ret_json, text, (size_t)n + 1);
	return n;
}

static bool number(const json_t *o, const char *key, uint64_t *ret_value)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*ret_value = (uint64_t)json_integer_value(v);
	return true;
}

static bool is_text(const json_t *o, const char *key, const char *want)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s && strcmp(s, want) == 0;
}

static int take_state(struct leat_loader *ld, const json_t *o)
{
	char ds[20], seed[24], order[32];
	uint64_t v, n, epoch, pos, batch;
	snprintf(ds, sizeof(ds), "%016llx", (unsigned long long)ld->ds->of.word);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)ld->seed);
	order_text(ld, order, sizeof(order));
	if (!number(o, "v", &v) || !number(o, "n", &n) || !number(o, "epoch", &epoch) ||
	    !number(o, "pos", &pos) || !number(o, "G", &batch))
		return error_say(-LE_INVAL, "not the state of a loader");
	if (v != ORDER_VERSION)
		return error_say(-LE_INVAL,
				 "the state is of order version %llu, this library has %d",
				 (unsigned long long)v, ORDER_VERSION);
	if (!is_text(o, "ds", ds) || n != ld->deal.n)
		return error_say(-LE_INVAL, "the state is of another data set");
	if (!is_text(o, "order", order) || !is_text(o, "seed", seed) || batch != ld->deal.batch)
		return error_say(-LE_INVAL,
				 "the state is of another order, seed or global batch: %s, seed "
				 "%s, batch %u "
				 "are needed",
				 order, seed, ld->deal.batch);
	if (pos % batch != 0 || pos / batch > ld->steps)
		return error_say(-LE_INVAL, "the state's position %llu is none of this epoch",
				 (unsigned long long)pos);
	pthread_mutex_lock(&ld->lock);
	loader_jump(ld, epoch, pos / batch);
	pthread_mutex_unlock(&ld->lock);
	return 0;
}

int leat_loader_set_state(struct leat_loader *ld, const char *json)
{
	TRY(dataset_check_pid(ld->ds));
	if (strnlen(json, 4096) == 4096)
		return error_say(-LE_INVAL, "not the state of a loader");
	json_t *o = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(o) ? take_state(ld, o)
				   : error_say(-LE_INVAL, "not the state of a loader");
	json_decref(o);
	return rc;
}

int leat_loader_set_epoch(struct leat_loader *ld, uint64_t epoch)
{
	TRY(dataset_check_pid(ld->ds));
	pthread_mutex_lock(&ld->lock);
	if (ld->want_step >= ld->steps && epoch == ld->want_epoch + 1) {
		/* The caller skipped the end of the previous epoch; batches that were read ahead
		 * are right. */
		ld->want_epoch = epoch;
		ld->want_step = ld->phase;
		loader_update_event(ld);
		loader_wake(ld);
	} else if (epoch != ld->want_epoch || ld->want_step != ld->phase) {
		loader_jump(ld, epoch, ld->phase);
	}
	pthread_mutex_unlock(&ld->lock);
	return 0;
}

uint64_t leat_checksum(const void *bytes, uint64_t len)
{
	return checksum64(bytes, len);
}

const char *leat_stall_name(int stall)
{
	static const char *const names[] = {"local", "server", "verify", "consumer",
					    "start", "decode", "peer"};
	return stall >= 0 && stall < LEAT_STALLS ? names[stall] : "unknown";
}

int leat_loader_metrics(struct leat_loader *ld, struct leat_loader_metrics *ret_metrics)
{
	size_t size = ret_metrics->size;
	struct leat_loader_metrics m;
	TRY(dataset_check_pid(ld->ds));
	pthread_mutex_lock(&ld->lock);
	m = ld->m;
	m.depth = ld->n_slots;
	m.ahead = ld->ahead;
	m.ready = m.held = m.filling = 0;
	m.memory_pinned = 0;
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		m.ready += ld->slots[i].state == BATCH_READY;
		m.held += ld->slots[i].state == BATCH_HELD;
		m.filling += ld->slots[i].state == BATCH_FILL;
		m.memory_pinned += cuda_slot_pinned(ld->slots[i].cuda);
	}
	m.memory = ld->memory;
	m.memory_limit = ld->memory_limit;
	if (ld->cache)
		cache_metrics(ld->cache, &m);
	if (ld->gds) {
		struct gds_stats st;
		gds_stats(ld->gds, &st);
		m.direct_mib_s = st.direct_mib_s;
		m.bounce_mib_s = st.bounce_mib_s;
		m.direct_failed = st.failed;
	}
	m.peers = m.peers_dropped = m.peers_lied = m.chunks_healed = 0;
	dataset_peer_metrics(ld->ds, &m);
	pthread_mutex_unlock(&ld->lock);
	m.size = size;
	memcpy(ret_metrics, &m, size < sizeof(m) ? size : sizeof(m));
	return 0;
}
