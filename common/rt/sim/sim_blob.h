/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse bytes in memory, for the simulated disk. Pages never written, or zeroed whole, take no
 * memory. */
#ifndef LEAT_COMMON_RT_SIM_SIM_BLOB_H
#define LEAT_COMMON_RT_SIM_SIM_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct sim_blob {
	uint8_t **pages;
	uint64_t n_pages; /* length of the table */
	uint64_t size;
};

void sim_blob_fini(struct sim_blob *b);
/* Reads up to len bytes from off. Returns how many (0 at the end). */
size_t sim_blob_read(const struct sim_blob *b, void *buf, size_t len, uint64_t off);
/* Grows the blob; data NULL: zeros. */
int sim_blob_write(struct sim_blob *b, const void *data, uint64_t len, uint64_t off) CHECK_RESULT;
int sim_blob_resize(struct sim_blob *b, uint64_t size) CHECK_RESULT;
int sim_blob_copy(struct sim_blob *dst, const struct sim_blob *src) CHECK_RESULT;
uint64_t sim_blob_used(const struct sim_blob *b); /* bytes of memory */

#endif
