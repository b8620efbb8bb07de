/* SPDX-License-Identifier: Apache-2.0 */
/* See logs.h. */
#include "tests/sim/logs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define RECORD      64u
#define RECORDS_MAX 4096u
#define PAUSE_US    20000u

struct logs {
	struct cluster *c;
	uint64_t tick;
	struct record {
		uint64_t began, ended; /* 0: it is not certain to be there */
		uint64_t given_up;     /* no request in flight can write it from then on */
		uint32_t client, seen;
	} records[RECORDS_MAX];
	uint32_t n;
	/* Of all truncations; one that has not ended may still be executed. */
	uint64_t newest_end, newest_begin;
	uint32_t n_cutting;
};

static const struct cred root = {.uid = 0, .gid = 0, .flags = CRED_CHECKED};

static uint64_t rnd(struct logs *l, uint64_t n)
{
	return sim_random_below(l->c->sim, n);
}

static bool expect(struct logs *l, const char *what, int64_t status, int64_t want)
{
	if (status != want && !l->c->failed)
		cluster_fail(l->c, "log: %s: %s (%lld), expected %lld", what,
			     status < 0 ? status_name((int)status) : "ok", (long long)status,
			     (long long)want);
	return !l->c->failed;
}

static int open_log(struct logs *l, struct client *client, uint32_t flags,
		    struct ll_file **ret_file)
{
	struct attr a;

	return ll_create(client, &root, l->c->shared_dir[0], bytes_str("emptied"), 0644,
			 flags | O_CREAT, ret_file, &a);
}

static void record_fill(uint8_t rec[RECORD], uint32_t no)
{
	memset(rec, 0x5a, RECORD);
	memcpy(rec, &no, 4);
}

/* ---- use ---- */

static void append_one(struct logs *l, struct ll_file *file, uint32_t index)
{
	const struct plan *p = &l->c->plan;
	uint8_t rec[RECORD];
	uint32_t no = l->n;
	int64_t n;
	int rc = 0;

	if (no == RECORDS_MAX)
		return;
	l->n++;
	l->records[no].client = index;
	l->records[no].began = ++l->tick;
	record_fill(rec, no);
	n = ll_pwrite(file, rec, RECORD, 0);
	if (n == RECORD && (p->crash_clients || p->crash_servers || p->cut_network))
		rc = ll_fsync(file, true);
	n = rc < 0 ? rc : n;
	log_debug("client %u: record %u of the log: %lld", index, no, (long long)n);
	if (n == -LE_NOSPC && p->refuse)
		l->records[no].given_up = ++l->tick;
	else if (expect(l, "append", n, RECORD))
		l->records[no].ended = ++l->tick;
}

static void append_some(struct logs *l, struct client *client, uint32_t index)
{
	uint64_t n = 1 + rnd(l, 8);
	struct ll_file *file;

	if (!expect(l, "open", open_log(l, client, O_WRONLY | O_APPEND, &file), 0))
		return;
	for (uint64_t i = 0; i < n && !l->c->failed; i++) {
		append_one(l, file, index);
		if (rnd(l, 2))
			fiber_sleep_us(rnd(l, PAUSE_US));
	}
	ll_release(file);
}

static void empty(struct logs *l, struct client *client, uint32_t index)
{
	struct ll_file *file;
	struct attr a, set = {.size = 0};
	uint64_t began;

	if (!expect(l, "open", open_log(l, client, O_RDWR, &file), 0))
		return;
	l->n_cutting++;
	began = ++l->tick;
	log_debug("client %u empties the log", index);
	if (expect(l, "empty",
		   ll_setattr(client, &root, ll_file_ino(file), NULL, SET_SIZE, &set, &a), 0)) {
		l->n_cutting--;
		l->newest_end = ++l->tick;
		l->newest_begin = began > l->newest_begin ? began : l->newest_begin;
		log_debug("client %u has emptied the log", index);
	}
	ll_release(file);
}

void logs_use(struct logs *l, struct client *client, uint32_t index)
{
	if (rnd(l, 3) == 0)
		empty(l, client, index);
	else
		append_some(l, client, index);
}

void logs_client_gone(struct logs *l, uint32_t index)
{
	++l->tick;
	for (uint32_t i = 0; i < l->n; i++) {
		struct record *r = &l->records[i];

		if (r->client == index && r->ended == 0 && r->given_up == 0)
			r->given_up = l->tick;
	}
}

/* ---- the end ---- */

/* An append that was not executed, and that no truncation followed. */
static bool may_have_hole(const struct logs *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct record *r = &l->records[i];

		if (r->ended == 0 && (r->given_up == 0 || r->given_up > l->newest_begin))
			return true;
	}
	return false;
}

static void look_at(struct logs *l, const uint8_t rec[RECORD], uint64_t at)
{
	static const uint8_t zeros[RECORD];
	uint8_t want[RECORD];
	uint32_t no;

	memcpy(&no, rec, 4);
	record_fill(want, no);
	if (no < l->n && memcmp(rec, want, RECORD) == 0)
		l->records[no].seen++;
	else if (memcmp(rec, zeros, RECORD) != 0)
		cluster_fail(l->c, "log: torn at %llu", (unsigned long long)at);
	else if (!may_have_hole(l))
		cluster_fail(l->c, "log: a hole at %llu", (unsigned long long)at);
}

static void judge(struct logs *l, uint32_t no)
{
	const struct record *r = &l->records[no];
	bool there = r->ended != 0 && l->n_cutting == 0 && r->began > l->newest_end;
	bool gone = r->ended != 0 && r->ended < l->newest_begin;

	if (r->seen > 1 || (there && r->seen == 0) || (gone && r->seen > 0))
		cluster_fail(l->c, "log: record %u is there %u times%s", no, r->seen,
			     gone ? ", and was cut off" : "");
}

void logs_verify(struct logs *l, struct client *client)
{
	uint64_t len = 0, size = (uint64_t)RECORDS_MAX * RECORD;
	uint8_t *buf = malloc(size);
	struct ll_file *file;
	int64_t n;

	if (buf == NULL || !expect(l, "open", open_log(l, client, O_RDONLY, &file), 0))
		goto out;
	while ((n = ll_pread(file, buf + len, size - len, len)) > 0)
		len += (uint64_t)n;
	ll_release(file);
	expect(l, "read", n, 0);
	expect(l, "size", (int64_t)(len % RECORD), 0);
	for (uint64_t at = 0; at < len && !l->c->failed; at += RECORD)
		look_at(l, buf + at, at);
	for (uint32_t i = 0; i < l->n && !l->c->failed; i++)
		judge(l, i);
	if (!l->c->failed)
		expect(l, "remove",
		       ll_unlink(client, &root, l->c->shared_dir[0], bytes_str("emptied")), 0);
out:
	free(buf);
	free(l);
}

struct logs *logs_create(struct cluster *c)
{
	struct logs *l = calloc(1, sizeof(*l));

	if (l != NULL)
		l->c = c;
	return l;
}
