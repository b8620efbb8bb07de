/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the servers: RocksDB. For env_real_options.kv_open.
 */
#ifndef LEAT_COMMON_KV_KV_ROCKSDB_H
#define LEAT_COMMON_KV_KV_ROCKSDB_H

#include "common/kv/kv.h"

/* Opens a store, for struct env_real_options and struct sim_options. Yields. */
int kv_rocksdb_open(struct env *env, const char *path, const struct kv_options *opts,
		    struct kv **ret_kv) CHECK_RESULT;

void kv_rocksdb_value_fini(struct kv_value *v);

#endif
