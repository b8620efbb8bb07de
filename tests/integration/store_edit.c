/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plants damage in the store of a server that is not running:
 *
 *   store_edit STORE nlink INO N | size INO N | gen INO N    of a metadata store
 *   store_edit STORE drop-inode INO | drop-entry INO | orphan INO | no-orphan INO
 *   store_edit INDEX drop-chunks INO      of an object server; the inventory shows the loss
 *   store_edit INDEX forget-chunks INO    like drop-chunks, but the inventory forgets them too
 *
 * Prints the number of records that it changed; exits with 1 if it changed none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"
#include "mds/store/keys.h"
#include "mds/store/records.h"

WIRE_DEFINE_MESSAGE(inode_rec)
WIRE_DEFINE_MESSAGE(dentry_rec)

#define CHUNK_INO_AT 5 /* 'K', chain (4 bytes), inode number, … (ossd/chunk/keys.h) */

static struct {
	const char *path, *what;
	uint64_t ino, number;
	struct env *env;
	struct kv_batch *batch;
	uint32_t n;
	int status;
} job;

static void edit_inode(const void *key, size_t key_len, const void *value, size_t len)
{
	uint8_t buf[RECORD_MAX];
	struct inode_rec rec;
	struct wire_r r;
	struct wire_w w;

	wire_r_init(&r, value, len);
	wire_get_inode_rec(&r, &rec);
	if (strcmp(job.what, "nlink") == 0)
		rec.attr.nlink = (uint32_t)job.number;
	else if (strcmp(job.what, "gen") == 0)
		rec.attr.layout.gen = (uint32_t)job.number;
	else
		rec.attr.size = job.number;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_inode_rec(&w, &rec);
	kv_batch_put(job.batch, key, key_len, buf, w.len);
	job.n++;
}

static bool names_it(const void *value, size_t len)
{
	struct dentry_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	return r.status == 0 && rec.ino.v == job.ino;
}

static int each(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	const uint8_t *k = key;
	bool forget = strcmp(job.what, "forget-chunks") == 0;

	(void)arg;
	if (k[0] == 'I' && key_len == 9 && get_be(k + 1, 8) == job.ino) {
		if (strcmp(job.what, "nlink") == 0 || strcmp(job.what, "size") == 0 ||
		    strcmp(job.what, "gen") == 0)
			edit_inode(key, key_len, value, len);
		else if (strcmp(job.what, "drop-inode") == 0)
			kv_batch_delete(job.batch, key, key_len), job.n++;
	} else if (k[0] == 'D' && strcmp(job.what, "drop-entry") == 0 && names_it(value, len)) {
		kv_batch_delete(job.batch, key, key_len), job.n++;
	} else if (k[0] == 'K' && key_len == 25 && get_be(k + CHUNK_INO_AT, 8) == job.ino) {
		if (strcmp(job.what, "drop-chunks") == 0 || forget)
			kv_batch_delete(job.batch, key, key_len), job.n++;
	} else if (forget && (k[0] == 'H' || k[0] == 'N' ||
			      (key_len == 7 && memcmp(k, "Mledger", 7) == 0))) {
		kv_batch_delete(job.batch, key, key_len);
	}
	return 0;
}

static int edit(void)
{
	struct kv_options ko = {0};
	struct key orphan = key_of('O', job.ino);
	uint8_t begin = 1;
	struct kv_range range = {.begin = &begin, .begin_len = 1, .max_items = 1u << 20};
	struct kv *kv;
	bool more;
	int rc;

	TRY(kv_open(job.env, job.path, &ko, &kv));
	job.batch = kv_batch_create();
	if (strcmp(job.what, "orphan") == 0)
		kv_batch_put(job.batch, orphan.b, orphan.len, "", 0), job.n++;
	else if (strcmp(job.what, "no-orphan") == 0)
		kv_batch_delete(job.batch, orphan.b, orphan.len), job.n++;
	rc = kv_scan(kv, NULL, &range, each, NULL, &more);
	if (rc == 0)
		rc = kv_commit(kv, job.batch, true);
	kv_batch_destroy(job.batch);
	kv_close(kv);
	return rc;
}

static void edit_fiber(void *arg)
{
	job.status = edit();
	loop_stop(arg);
}

int main(int argc, char **argv)
{
	struct env_real_options eo = {.n_workers = 1, .kv_open = kv_rocksdb_open};
	struct loop_options lo = {.name = "edit"};
	struct loop *loop;

	if (argc < 4)
		return 2;
	job.path = argv[1];
	job.what = argv[2];
	job.ino = strtoull(argv[3], NULL, 10);
	job.number = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
	if (env_real_create(&eo, &job.env) < 0 || loop_create(job.env, &lo, &loop) < 0 ||
	    fiber_spawn_on(loop, "edit", edit_fiber, loop) < 0)
		return 2;
	loop_run(loop);
	loop_destroy(loop);
	env_real_destroy(job.env);
	printf("%u\n", job.n);
	if (job.status < 0)
		fprintf(stderr, "%s: %s\n", job.path, status_text(job.status));
	return job.status < 0 || job.n == 0;
}
