/*
 * Leases of chunks at the object servers (oss_read): for who reads a file without a lease and puts
 * what it has read where others see it again without asking, as a kernel does that had begun to
 * cache the file. Nobody's write that such a read may not have seen ends until they are given back.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_CHUNK_LEASE_H
#define LEAT_CLIENT_CHUNK_LEASE_H

#include "client/io.h"

/* That one read may touch. */
#define READ_CHUNKS_MAX (LL_IO_MAX / LEAT_CHUNK_SIZE_MIN + 1)

struct ll_chunk_leases {
	struct idata *d;
	uint64_t number;     /* of the session's, the same for all */
	uint64_t stored_end; /* of what was read: so far the file reaches at least */
	uint64_t hole;       /* the first of what was read */
	uint32_t n;
	uint64_t idx[READ_CHUNKS_MAX];
};

/* Keeps the inode until they are given back (ll_release_leases). NULL without memory. */
struct ll_chunk_leases *chunk_leases_make(struct idata *d);
/* This chunk is about to be read under one of them. One that there is no room for (a layout that
 * has changed between attempts) ends by itself. */
void chunk_leases_add(struct ll_chunk_leases *l, uint64_t idx);

#endif
