/*
 * One pass: read up to BATCH rows from `from` on, send every target one oss_remove with the files
 * that have chunks there, delete the rows whose targets all answered. Rows that stay are seen again
 * by the next pass that starts at the beginning, after a pause.
 */
#include "mds/reclaim.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/op.h"

#define BATCH          512u
#define FILE_WIRE_SIZE 12u
#define RETRY_MS       1000u

struct row {
	uint64_t seq;
	struct removal_rec rec;
	bool failed;
};

struct pass {
	struct mds *m;
	struct row *rows;
	uint32_t n;
	int status;
};

struct send {
	struct pass *pass;
	uint32_t target;
	int status;
};

void reclaim_init(struct reclaim *r)
{
	*r = (struct reclaim){.kicked = true};
	waitq_init(&r->work);
}

void reclaim_kick(struct mds *m)
{
	m->reclaim.kicked = true;
	waitq_wake_all(&m->reclaim.work);
}

static int each_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct pass *p = arg;
	struct row *row = &p->rows[p->n];
	struct wire_r r;

	*row = (struct row){.seq = get_be((const uint8_t *)key + 1, 8)};
	wire_r_init(&r, value, len);
	wire_get_removal_rec(&r, &row->rec);
	if (key_len != 9 || r.status < 0) {
		p->status = -LE_CORRUPT_STORE;
		return 1;
	}
	return ++p->n == BATCH;
}

static bool row_on_target(const struct mds *m, const struct row *row, uint32_t target)
{
	const struct layout *l = &row->rec.layout;

	for (uint32_t i = 0; i < l->width && i < l->table; i++) {
		struct target *t = cluster_chain_target(&m->cluster, l->table,
							layout_chain_index(l, l->table, i));

		if (t != NULL && t->info.id == target)
			return true;
	}
	return false;
}

static void send_target(void *arg)
{
	struct send *sd = arg;
	struct mds *m = sd->pass->m;
	uint8_t *buf = malloc(BATCH * FILE_WIRE_SIZE);
	struct oss_remove_req req;
	struct oss_remove_rep rep;
	struct wire_w w;

	sd->status = -LE_NOMEM;
	if (buf == NULL)
		return;
	wire_w_init(&w, buf, BATCH * FILE_WIRE_SIZE);
	for (uint32_t i = 0; i < sd->pass->n; i++) {
		const struct row *row = &sd->pass->rows[i];

		if (!row_on_target(m, row, sd->target))
			continue;
		wire_put_u64(&w, &row->rec.ino.v);
		wire_put_u32(&w, &row->rec.layout.gen);
	}
	req.files = bytes_of(buf, (uint32_t)w.len);
	sd->status = w.len == 0 ? 0
				: oss_call(&m->oss, sd->target, OP_oss_remove, &req, &rep,
					   loop_deadline_ms(m->params.oss_timeout_ms));
	free(buf);
	if (sd->status == 0)
		return;
	for (uint32_t i = 0; i < sd->pass->n; i++)
		if (row_on_target(m, &sd->pass->rows[i], sd->target))
			sd->pass->rows[i].failed = true;
}

static int send_all(struct pass *p)
{
	uint32_t n = p->m->cluster.n_targets;
	struct send *sends = calloc(n + 1, sizeof(*sends));

	if (sends == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		sends[i] = (struct send){p, i + 1, 0};
	fiber_parallel("remove", send_target, sends, sizeof(*sends), n, 16);
	free(sends);
	return 0;
}

static int delete_rows(struct pass *p, uint64_t *ret_first_left)
{
	struct store *s = &p->m->store;
	uint64_t n = 0;

	TRY(txn_begin(s));
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->rows[i].failed) {
			if (*ret_first_left > p->rows[i].seq)
				*ret_first_left = p->rows[i].seq;
			continue;
		}
		txn_delete(s, key_of('Q', p->rows[i].seq));
		n++;
	}
	TRY(store_wait(s, txn_end(s)));
	metric_add(&p->m->metrics.reclaimed, n);
	p->m->reclaim.n_waiting += p->n - n;
	return 0;
}

/* From `from` to the end of the queue. ret_left: first row that stays. */
static int pass(struct mds *m, uint64_t from, uint64_t *ret_left)
{
	struct key end = key_after(key_kind('Q'));
	struct pass p = {.m = m};
	bool more = true;
	int rc = 0;

	p.rows = calloc(BATCH, sizeof(*p.rows));
	if (p.rows == NULL)
		return -LE_NOMEM;
	*ret_left = UINT64_MAX;
	m->reclaim.n_waiting = 0;
	while (rc == 0 && more && !m->stopping) {
		struct key begin = key_of('Q', from);
		struct kv_range range = {begin.b, begin.len, end.b, end.len, BATCH};

		p.n = 0;
		rc = kv_scan(m->store.kv, NULL, &range, each_row, &p, &more);
		if (rc == 0)
			rc = p.status;
		if (rc < 0 || p.n == 0)
			break;
		from = p.rows[p.n - 1].seq + 1;
		rc = send_all(&p);
		if (rc == 0)
			rc = delete_rows(&p, ret_left);
	}
	if (rc == 0 && *ret_left == UINT64_MAX)
		*ret_left = from;
	free(p.rows);
	return rc;
}

void reclaim_run(struct mds *m)
{
	struct reclaim *r = &m->reclaim;

	while (!m->stopping) {
		uint64_t left;
		int rc;

		if (!r->kicked && r->n_waiting == 0) {
			if (waitq_wait(&r->work, NO_DEADLINE) < 0)
				break;
			continue;
		}
		if (mds_sleep_ms(m, r->kicked ? m->params.reclaim_delay_ms : RETRY_MS) < 0)
			break;
		r->kicked = false;
		rc = pass(m, r->from, &left);
		if (rc == 0)
			r->from = left;
		else if (!m->stopping)
			log_warn("removed data: %s; trying on", status_text(rc));
		if (rc < 0)
			r->n_waiting++;
	}
}
