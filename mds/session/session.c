/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sessions; see session.h. */
#include "mds/session/session.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rt/loop.h"

static uint64_t client_hash(const struct uuid *client)
{
	return checksum64(client->b, sizeof(client->b));
}

struct session *session_find(struct sessions *ss, uint64_t id)
{
	struct hmap_node *n = hmap_find(&ss->by_id, hash_u64(id));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct session *se = container_of(n, struct session, by_id);

		if (se->id == id)
			return se;
	}
	return NULL;
}

struct session *session_find_client(struct sessions *ss, const struct uuid *client)
{
	struct hmap_node *n = hmap_find(&ss->by_client, client_hash(client));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct session *se = container_of(n, struct session, by_client);

		if (uuid_equal(&se->client, client))
			return se;
	}
	return NULL;
}

static struct session *session_alloc(uint64_t id, const struct uuid *client, struct bytes name,
				     uint32_t slots)
{
	struct session *se = calloc(1, sizeof(*se));

	if (se == NULL)
		return NULL;
	se->slots = calloc(slots, sizeof(*se->slots));
	if (se->slots == NULL) {
		free(se);
		return NULL;
	}
	for (uint32_t i = 0; i < slots; i++)
		replay_seq_init(&se->slots[i].seqs);
	se->magic = SESSION_MAGIC;
	se->id = id;
	se->client = *client;
	se->n_slots = slots;
	se->refs = 1;
	se->last_contact_us = loop_now_us();
	snprintf(se->name, sizeof(se->name), "%.*s", (int)name.len,
		 name.len > 0 ? (const char *)name.data : "");
	list_init(&se->opens);
	list_init(&se->leases);
	list_init(&se->assumed);
	list_init(&se->link);
	return se;
}

static void session_publish(struct sessions *ss, struct session *se)
{
	hmap_insert(&ss->by_id, &se->by_id, hash_u64(se->id));
	hmap_insert(&ss->by_client, &se->by_client, client_hash(&se->client));
	list_push(&ss->all, &se->link);
	ss->n++;
	ss->gen++;
	ASSERT(ss->n == ss->by_id.n);
}

void session_ref(struct session *se)
{
	ASSERT(se->refs > 0);
	se->refs++;
}

void session_unref(struct session *se)
{
	ASSERT(se->refs > 0);
	if (--se->refs > 0)
		return;
	ASSERT(list_empty(&se->opens) && list_empty(&se->leases));
	for (uint32_t i = 0; i < se->n_slots; i++)
		free(se->slots[i].reply);
	free(se->slots);
	free(se->reached);
	if (se->peer != NULL)
		rpc_peer_unref(se->peer);
	se->magic = 0;
	free(se);
}

int session_create(struct sessions *ss, const struct uuid *client, struct bytes name,
		   uint32_t slots, struct session **ret_session)
{
	struct store *s = ss->store;
	struct session *se;
	int rc;

	ASSERT(ss->lock.held);
	if (ss->n >= ss->params->sessions_max)
		return -LE_OVERLOAD;
	if (name.len >= sizeof(se->name))
		name.len = sizeof(se->name) - 1;
	if (slots == 0 || slots > ss->params->session_slots_max)
		slots = ss->params->session_slots_max;
	TRY(txn_begin(s));
	se = session_alloc(s->counters.next_session, client, name, slots);
	if (se == NULL)
		return -LE_NOMEM;
	s->counters.next_session++;
	txn_counters(s);
	TXN_PUT(s, key_of('S', se->id), session_rec, &((struct session_rec){*client, name, slots}));
	rc = store_wait(s, txn_end(s));
	if (rc < 0) {
		session_unref(se);
		return rc;
	}
	session_publish(ss, se);
	*ret_session = se;
	return 0;
}

void session_attach(struct session *se, struct rpc_peer *p)
{
	struct rpc_peer *old = se->peer;
	NO_YIELD();

	se->last_contact_us = loop_now_us();
	if (old == p)
		return;
	rpc_peer_ref(p);
	se->peer = p;
	snprintf(se->addr, sizeof(se->addr), "%s", p->addr);
	if (old != NULL) {
		old->user = NULL;
		rpc_peer_kill(old);
		rpc_peer_unref(old);
	}
}

void session_detach(struct session *se, struct rpc_peer *p)
{
	if (se->peer != p)
		return;
	se->peer = NULL;
	rpc_peer_unref(p);
}

int session_remove(struct sessions *ss, struct session *se)
{
	struct store *s = ss->store;

	ASSERT(ss->lock.held && !se->ended && ss->n > 0);
	TRY(txn_begin(s));
	txn_delete(s, key_of('S', se->id));
	txn_delete_prefix(s, key_of('R', se->id));
	se->ended = true; /* none of its operations joins a later batch */
	for (uint32_t i = 0; i < se->n_slots; i++)
		waitq_wake_all(&se->slots[i].seqs.done);
	TRY(store_wait(s, txn_end(s)));
	hmap_remove(&ss->by_id, &se->by_id);
	hmap_remove(&ss->by_client, &se->by_client);
	list_remove(&se->link);
	ss->n--;
	ss->gen++;
	if (se->peer != NULL) {
		se->peer->user = NULL;
		rpc_peer_kill(se->peer);
	}
	session_unref(se);
	return 0;
}

bool session_returned(struct sessions *ss, struct session *se)
{
	if (!se->from_store)
		return false;
	ASSERT(ss->n_from_store > 0);
	se->from_store = false;
	return --ss->n_from_store == 0;
}

/* ---- start ---- */

struct load {
	struct sessions *ss;
	int status;
};

static int load_session(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct session_rec rec;
	struct session *se;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_session_rec(&r, &rec);
	if (key_len != 9 || r.status < 0 || rec.slots == 0 || rec.slots > 65536) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	se = session_alloc(get_be((const uint8_t *)key + 1, 8), &rec.client, rec.name, rec.slots);
	if (se == NULL) {
		l->status = -LE_NOMEM;
		return 1;
	}
	se->from_store = true;
	l->ss->n_from_store++;
	session_publish(l->ss, se);
	return 0;
}

static int load_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	const uint8_t *k = key;
	struct session *se;

	if (key_len != 13) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	se = session_find(l->ss, get_be(k + 1, 8));
	if (se != NULL)
		l->status = replay_load_row(se, (uint32_t)get_be(k + 9, 4), value, len);
	return l->status < 0;
}

static int load_kind(struct sessions *ss, char kind,
		     int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				 size_t len))
{
	const uint8_t begin = (uint8_t)kind, end = (uint8_t)(kind + 1);
	struct kv_range range = {&begin, 1, &end, 1, UINT32_MAX};
	struct load l = {ss, 0};
	bool more;

	TRY(kv_scan(ss->store->kv, NULL, &range, each, &l, &more));
	if (l.status < 0)
		log_error("the rows of sessions in the store are damaged: restore a backup "
			  "(leat-mds restore)");
	return l.status;
}

void sessions_init(struct sessions *ss)
{
	*ss = (struct sessions){0};
	hmap_init(&ss->by_id, 64);
	hmap_init(&ss->by_client, 64);
	list_init(&ss->all);
}

int sessions_load(struct sessions *ss, struct store *s, const struct mds_params *p)
{
	ss->store = s;
	ss->params = p;
	ss->gen = s->cluster.incarnation << 32;
	fmutex_init(&ss->lock);
	TRY(load_kind(ss, 'S', load_session));
	return load_kind(ss, 'R', load_row);
}

void sessions_fini(struct sessions *ss)
{
	list_for_each_safe (n, &ss->all) {
		struct session *se = list_entry(n, struct session, link);

		list_remove(&se->link);
		session_unref(se);
	}
	hmap_fini(&ss->by_id);
	hmap_fini(&ss->by_client);
}
