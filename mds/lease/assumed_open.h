/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that a silent client may have open. Under a lease a client opens files for reading
 * without a request. If the client is silent when the lease is recalled, the server assumes that
 * it has the file open (open_assume), so that the file is not removed. When the client is in
 * contact again, the server requests what it has open. Owned by the loop.
 */
#ifndef LEAT_MDS_LEASE_ASSUMED_OPEN_H
#define LEAT_MDS_LEASE_ASSUMED_OPEN_H

struct mds;

/* The body of the background fiber that requests, from sessions with assumed opens, what they
 * have open. Returns when the server stops. Yields. */
void assumed_opens_query(struct mds *m);

#endif
