/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one range of a file: in large requests, or coalesced. Owned by the client's loop. */
#ifndef LEAT_CLIENT_DATA_WRITE_RANGE_H
#define LEAT_CLIENT_DATA_WRITE_RANGE_H

#include <stdint.h>

#include "client/layout/stripe.h"

struct ll_file;
struct slot_vec;

/* Called before bytes are accepted. Checks that the file is not sealed or immutable (-LE_PERM), and
 * removes set-id bits and security.capability at the MDS. Returns 0 or an error. Yields. */
int write_prepare(struct ll_file *f);

/* Records that bytes [off, off + len) are accepted: updates this client's size, holes and
 * statistics. Does not yield. */
void write_note(struct ll_file *f, uint64_t off, uint64_t len);

/* Writes a range in one request per chunk. how: of enum wb_how. Returns 0 or the first error.
 * Yields. */
int write_large(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		uint32_t n, unsigned how);

/* Returns the size of a coalescing unit in bytes. Units divide chunks. Does not yield. */
uint32_t write_unit_size(const struct ll_file *f);

/* Returns the part of the range in its first unit, which is in one chunk. Does not yield. */
struct stripe_part write_unit_part(const struct ll_file *f, uint64_t off, uint64_t len);

/* Writes a range through the coalescing slot; where that is not possible, directly to the servers.
 * Returns 0 or an error. Yields. */
int write_small(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		uint32_t n);

/* Waits until the chains have accepted this client's writes and its size of the file is verified,
 * in a session in which the file is open. Called before the request for an append reservation:
 * after a truncation the MDS trusts only the chains. Returns 0 or an error. Yields. */
int write_flush_end(struct ll_file *f);

#endif
