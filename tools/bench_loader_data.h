/* SPDX-License-Identifier: Apache-2.0 */
/* leat bench loader --generate: data of a workload's shape, and its removal. */
#ifndef LEAT_TOOLS_BENCH_LOADER_DATA_H
#define LEAT_TOOLS_BENCH_LOADER_DATA_H

#include "tools/bench_loader.h"

/* Writes enough files for the steps of b into a new folder below dir, and returns its path in
 * ret_path. Returns EXIT_OK, or an exit status after a message; then no file remains. */
int bench_data_make(struct loader_bench *b, const char *dir, char *ret_path, size_t size);
/* Removes the folder and the files in it. */
void bench_data_remove(const char *path);
/* Drops the files of a local folder from this machine's page cache. Returns 0 or -errno. */
int bench_data_drop(const char *path);

#endif
