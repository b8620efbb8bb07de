/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/ops/lease.h"

#include <stdlib.h>

#include "common/base/planted_bug.h"
#include "common/proto/oss_proto.h"

struct chunk_lease {
	struct list link;
	struct chunk_key key;
	uint64_t session, number, serial, until_us;
};

void chunk_leases_init(struct chunk_leases *l, struct env *env, struct metric *run_out)
{
	*l = (struct chunk_leases){.env = env, .run_out = run_out};
	list_init(&l->all);
	waitq_init(&l->ended);
}

static void lease_free(struct chunk_leases *l, struct chunk_lease *cl)
{
	list_remove(&cl->link);
	l->n--;
	free(cl);
}

void chunk_leases_fini(struct chunk_leases *l)
{
	while (!list_empty(&l->all))
		lease_free(l, list_entry(l->all.next, struct chunk_lease, link));
}

static void drop_old(struct chunk_leases *l)
{
	uint64_t now = env_now_us(l->env);

	while (!list_empty(&l->all)) {
		struct chunk_lease *cl = list_entry(l->all.next, struct chunk_lease, link);

		if (cl->until_us > now)
			break;
		metric_add(l->run_out, 1);
		lease_free(l, cl);
	}
}

/* Compares without generation: pages of an old generation are visible beside writes to the new
 * one. */
static bool same_place(const struct chunk_key *a, const struct chunk_key *b)
{
	return a->chain == b->chain && ino_equal(a->ino, b->ino) && a->idx == b->idx;
}

static bool has_too_many(const struct chunk_leases *l, uint64_t session)
{
	uint32_t n = 0;

	if (l->n < CHUNK_LEASES_SESSION_MAX)
		return false;
	list_for_each (at, &l->all)
		n += list_entry(at, struct chunk_lease, link)->session == session;
	return n >= CHUNK_LEASES_SESSION_MAX;
}

int chunk_lease_take(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number, uint64_t *ret_serial)
{
	struct chunk_lease *cl;

	drop_old(l);
	if (l->n == CHUNK_LEASES_MAX || has_too_many(l, session))
		return -LE_OVERLOAD;
	cl = malloc(sizeof(*cl));
	if (cl == NULL)
		return -LE_NOMEM;
	*cl = (struct chunk_lease){
		.key = *k,
		.session = session,
		.number = number,
		.serial = ++l->serial,
		.until_us = env_now_us(l->env) + CHUNK_LEASE_MS * 1000u,
	};
	list_push(&l->all, &cl->link);
	l->n++;
	*ret_serial = cl->serial;
	return 0;
}

void chunk_lease_drop(struct chunk_leases *l, uint64_t serial)
{
	list_for_each_safe (at, &l->all) {
		struct chunk_lease *cl = list_entry(at, struct chunk_lease, link);

		if (cl->serial == serial) {
			lease_free(l, cl);
			waitq_wake_all(&l->ended);
			return;
		}
	}
}

/* k NULL: leases of any chunk. */
static void end(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		uint64_t from, uint64_t to)
{
	const uint32_t n = l->n;

	list_for_each_safe (at, &l->all) {
		struct chunk_lease *cl = list_entry(at, struct chunk_lease, link);

		if (cl->session == session && cl->number >= from && cl->number < to &&
		    (k == NULL || same_place(&cl->key, k)))
			lease_free(l, cl);
	}
	if (l->n < n)
		waitq_wake_all(&l->ended);
}

void chunk_lease_end(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number)
{
	end(l, k, session, number, number + 1);
}

void chunk_leases_end_before(struct chunk_leases *l, uint64_t session, uint64_t number)
{
	end(l, NULL, session, 0, number);
}

/* Returns when the last lease of other sessions, up to that serial, expires at the latest; 0:
 * there is none. */
static uint64_t newest(struct chunk_leases *l, const struct chunk_leased *of, uint64_t serial)
{
	uint64_t until_us = 0;

	drop_old(l);
	list_for_each (at, &l->all) {
		const struct chunk_lease *cl = list_entry(at, struct chunk_lease, link);

		if (cl->serial > serial)
			break;
		if (cl->session != of->session && (of->chunk ? same_place(&cl->key, of->chunk)
							     : ino_equal(cl->key.ino, of->ino)))
			until_us = cl->until_us;
	}
	return until_us;
}

/* Returns when the leases have expired that another head or process granted to other sessions; 0:
 * they have. */
static uint64_t inherited(const struct chunk_leases *l, const struct chunk_leased *of)
{
	const struct chain *c = of->chain;

	if (env_now_us(l->env) >= c->leases_us || c->leases_of == of->session ||
	    PLANTED_BUG(OSS_NEW_HEAD))
		return 0;
	return c->leases_us;
}

void chunk_leases_await(struct chunk_leases *l, const struct chunk_leased *of)
{
	const uint64_t serial = l->serial, old_us = inherited(l, of);
	uint64_t until_us;

	if (PLANTED_BUG(OSS_NO_LEASES))
		return;
	while ((until_us = newest(l, of, serial)) != 0 || env_now_us(l->env) < old_us) {
		int rc = waitq_wait(&l->ended, until_us > old_us ? until_us : old_us);

		(void)rc; /* the change is done: it is answered even if the request is
		           * interrupted */
	}
}

bool chunk_leases_any(struct chunk_leases *l, const struct chunk_leased *of)
{
	return !PLANTED_BUG(OSS_NO_LEASES) &&
	       (newest(l, of, l->serial) != 0 || inherited(l, of) != 0);
}
