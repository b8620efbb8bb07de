/* SPDX-License-Identifier: Apache-2.0 */
/* The disk of a simulated node that stages. It computes what each chunk should be, so that a
 * thousand copies fit into memory. Every file of the data set is one chunk. */
#ifndef LEAT_TESTS_SIM_FANOUT_DISK_H
#define LEAT_TESTS_SIM_FANOUT_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rt/env.h"

#define FANOUT_CHUNK 1024u /* stands for 1 MiB */

/* Computes the content of chunk i. */
void fanout_fill(uint32_t i, uint8_t ret_data[FANOUT_CHUNK]);
/* Computes the path of chunk i's file in the data set. */
void fanout_name(uint32_t i, char ret_name[16]);

struct fanout_disk {
	struct env env; /* of files only */
	uint32_t n_chunks;
	uint8_t *where;   /* of each chunk: enum fanout_where */
	uint64_t n_wrong; /* bytes were written that are not the data set's */
};

/* Returns 0 or -LE_NOMEM. */
int fanout_disk_init(struct fanout_disk *d, uint32_t n_chunks) CHECK_RESULT;
void fanout_disk_fini(struct fanout_disk *d);
/* Returns whether every file exists under its name, with its bytes. */
bool fanout_disk_is_whole(const struct fanout_disk *d);
/* Reads the bytes of chunk i. Returns false if it is missing. */
bool fanout_disk_read(const struct fanout_disk *d, uint32_t i, uint8_t ret_data[FANOUT_CHUNK]);

#endif
