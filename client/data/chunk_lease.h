/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunk leases at the object servers (oss_read). For a reader without a lease on the file that
 * serves the read data again without a request, as the kernel's page cache does. Until the chunk
 * leases are released, a write that is missing in the read data does not complete.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_CHUNK_LEASE_H
#define LEAT_CLIENT_DATA_CHUNK_LEASE_H

#include <stdint.h>

#include "client/ll.h"
#include "common/proto/types.h"

struct inode_io;

/* The maximum number of chunks that one read touches. */
#define READ_CHUNKS_MAX (LL_IO_MAX / LEAT_CHUNK_SIZE_MIN + 1)

/* The chunk leases of one read. */
struct ll_chunk_leases {
	struct inode_io *d;
	uint64_t number;     /* number in the session, shared by all chunks */
	uint64_t stored_end; /* end of the data read: the file is at least as long */
	uint64_t hole;       /* file offset of the first hole read */
	uint32_t n;
	uint64_t idx[READ_CHUNKS_MAX];
};

/* Creates an empty set of chunk leases. Keeps the inode until ll_release_leases. Returns NULL
 * without memory. Does not yield. */
struct ll_chunk_leases *chunk_leases_make(struct inode_io *d);
/* Adds a chunk that is about to be read under the lease. If there is no space (the layout has
 * changed between attempts), the lease on that chunk is left to expire. Does not yield. */
void chunk_leases_add(struct ll_chunk_leases *l, uint64_t idx);

#endif
