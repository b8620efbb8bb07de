/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/fsck_snapshot.h"

#include "common/rt/loop.h"
#include "mds/mds.h"

#define IDLE_US   60000000u

static void drop(struct mds *m)
{
	if (m->fsck.snap != NULL)
		kv_snapshot_drop(m->store.kv, m->fsck.snap);
	m->fsck.snap = NULL;
}

void fsck_expire(struct mds *m)
{
	if (m->fsck.n_readers == 0 && loop_now_us() - m->fsck.used_us > IDLE_US)
		drop(m);
}

void fsck_fini(struct mds *m)
{
	drop(m);
}

static int read_counters(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct counters_rec *c = arg;
	struct wire_r r;

	(void)key, (void)key_len;
	wire_r_init(&r, value, len);
	wire_get_counters_rec(&r, c);
	return 1;
}

int fsck_take(struct mds *m)
{
	struct key k = key_cluster('n', 0), end = key_after(k);
	struct kv_range range = {k.b, k.len, end.b, end.len, 1};
	struct counters_rec c = {0};
	struct kv_snapshot *snap;
	bool more;
	int rc;

	TRY(kv_snapshot_take(m->store.kv, &snap));
	rc = kv_scan(m->store.kv, snap, &range, read_counters, &c, &more);
	if (rc < 0 || m->fsck.n_readers > 0) {
		kv_snapshot_drop(m->store.kv, snap);
		return rc < 0 ? rc : -LE_BUSY;
	}
	drop(m);
	m->fsck.snap = snap;
	m->fsck.id++;
	m->fsck.next_ino = c.next_ino;
	m->fsck.n_inodes = c.n_inodes;
	m->fsck.counted = false;
	return 0;
}
