/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delegated opens: under a lease a settled file is opened for reading without a request to the MDS.
 *
 * The lease makes that safe. A client that is about to change the file makes the MDS recall it, and
 * this client answers the recall only after it has reported the file as open. It reports one open,
 * which represents all delegated ones at the MDS until the last of them is closed. So a file that
 * is unlinked stays readable. Changes by this client usually cause no recall: it reports the open
 * before the change, or lets the MDS recall the lease where it must (`reported_ino` of mds_unlink).
 *
 * The capability to read comes with the reply to a lookup or open, and is kept with the inode.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_OPS_DELEGATED_OPEN_H
#define LEAT_CLIENT_OPS_DELEGATED_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct client;
struct cred;
struct inode_io;
struct inode;
struct ll_file;

/* Returns true if the open needs no request: there is a valid lease and capability, the file is
 * settled, and the user may read. Does not yield. */
bool delegation_allows(struct client *c, const struct cred *cred, const struct inode *i,
		       uint32_t flags);
/* Opens the file without a request. Takes over a reference of the caller on success. Returns 0 or
 * -LE_NOMEM. Does not yield. */
int delegation_open(struct client *c, const struct cred *cred, struct inode *i, uint32_t flags,
		    struct ll_file **ret_file) CHECK_RESULT;
/* Takes a delegated file out of the counts. Returns true if no close has to be sent: the file and
 * its reference are then freed. Otherwise the caller calls file_close_start. Does not yield. */
bool delegation_close(struct ll_file *f);
/* Reports the inode's delegated opens to the MDS, if there are any that it does not count. Returns
 * 0 or an error (logged). Yields. */
int delegation_report(struct client *c, struct inode *i) CHECK_RESULT;
/* Called when a session reports all open files: the delegated ones are then counted by one open, in
 * d->n_read. Does not yield. */
void delegation_counted(struct inode_io *d);

#endif
