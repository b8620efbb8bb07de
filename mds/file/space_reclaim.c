/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass reads the rows in batches from `from` on, sends each chain one oss_remove with the
 * files of the batch that have chunks there, and deletes the rows whose chains all answered. The
 * next pass, after a pause, begins at the first row that stayed.
 */
#include "mds/file/space_reclaim.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/mds.h"

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
	uint64_t n_left; /* of all rows */
	int status;
};

/* A row and a chain that it is on; sorted by chain. */
struct piece_of {
	uint32_t chain, row;
};

struct send {
	struct pass *pass;
	const struct piece_of *pieces; /* of one chain */
	uint32_t n;
	int status;
};

void space_reclaim_init(struct reclaim *r)
{
	*r = (struct reclaim){.kicked = true};
	waitq_init(&r->work);
}

void space_reclaim_kick(struct mds *m)
{
	m->reclaim.kicked = true;
	waitq_wake_all(&m->reclaim.work);
}

uint64_t space_reclaim_waiting(const struct reclaim *r)
{
	return r->n_waiting == 0 && (r->kicked || r->passing) ? 1 : r->n_waiting;
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

static int compare_pieces(const void *a, const void *b)
{
	const struct piece_of *x = a, *y = b;

	if (x->chain != y->chain)
		return x->chain < y->chain ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

static int pieces_make(const struct pass *p, struct piece_of **ret_v, uint32_t *ret_n)
{
	const struct cluster *c = &p->m->cluster;
	struct piece_of *v;
	uint32_t space = 0, n = 0;

	for (uint32_t i = 0; i < p->n; i++)
		space += cluster_layout_width(c, &p->rows[i].rec.layout);
	v = calloc(space + 1, sizeof(*v));
	if (v == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < p->n; i++) {
		const struct layout *l = &p->rows[i].rec.layout;
		uint32_t width = cluster_layout_width(c, l);

		for (uint32_t k = 0; k < width; k++)
			v[n++] = (struct piece_of){cluster_layout_chain(c, l, k)->id, i};
	}
	qsort(v, n, sizeof(*v), compare_pieces);
	*ret_v = v;
	*ret_n = n;
	return 0;
}

static void send_chain(void *arg)
{
	struct send *sd = arg;
	struct pass *p = sd->pass;
	struct mds *m = p->m;
	uint8_t *buf = malloc(sd->n * FILE_WIRE_SIZE);
	struct oss_remove_req req;
	struct oss_remove_rep rep;
	struct wire_w w;

	sd->status = -LE_NOMEM;
	if (buf != NULL) {
		wire_w_init(&w, buf, sd->n * FILE_WIRE_SIZE);
		for (uint32_t i = 0; i < sd->n; i++) {
			const struct removal_rec *rec = &p->rows[sd->pieces[i].row].rec;

			wire_put_u64(&w, &rec->ino.v);
			wire_put_u32(&w, &rec->layout.gen);
		}
		req.files = bytes_of(buf, (uint32_t)w.len);
		sd->status = oss_call(&m->oss, sd->pieces[0].chain, OP_oss_remove, &req, &rep,
				      loop_deadline_ms(m->params.oss_timeout_ms));
		/* A chain that was given up has nothing to remove. */
		if (sd->status == -LE_GIVEN_UP)
			sd->status = 0;
		free(buf);
	}
	for (uint32_t i = 0; i < sd->n && sd->status < 0; i++)
		p->rows[sd->pieces[i].row].failed = true;
}

static int send_all(struct pass *p)
{
	struct piece_of *pieces;
	struct send *sends;
	uint32_t n, n_sends = 0;

	TRY(pieces_make(p, &pieces, &n));
	sends = calloc(n + 1, sizeof(*sends));
	if (sends == NULL) {
		free(pieces);
		return -LE_NOMEM;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (i == 0 || pieces[i].chain != pieces[i - 1].chain)
			sends[n_sends++] = (struct send){p, &pieces[i], 0, 0};
		sends[n_sends - 1].n++;
	}
	fiber_parallel("remove", send_chain, sends, sizeof(*sends), n_sends, 16);
	free(sends);
	free(pieces);
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
	p->n_left += p->n - n;
	return 0;
}

/* One pass over the rows from `from` to the end of the queue. *ret_left: the first row that
 * stays. */
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
	m->reclaim.n_waiting = p.n_left;
	if (rc == 0 && *ret_left == UINT64_MAX)
		*ret_left = from;
	free(p.rows);
	return rc;
}

void space_reclaim_run(struct mds *m)
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
		r->passing = true;
		rc = pass(m, r->from, &left);
		r->passing = false;
		if (rc == 0)
			r->from = left;
		else if (!m->stopping)
			log_warn("freeing the space of removed files failed: %s; retrying",
				 status_text(rc));
		if (rc < 0)
			r->n_waiting++;
	}
}
