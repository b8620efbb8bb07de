/*
 * Delegated opens: under a lease a settled file is opened for reading without a word to the MDS.
 * The lease is what makes that safe. Whoever is about to change the file recalls it first, and the
 * recall is answered only after the MDS has been told that the file is open: by one open of its,
 * which stands for all that are delegated until the last of them is closed. So an unlinked file
 * stays readable here as everywhere. What this client changes itself recalls nothing: then it tells
 * before, or lets the MDS ask (`told` of mds_unlink).
 *
 * The right to read comes with the answer of a lookup or open and is kept with the inode.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DELEGATION_H
#define LEAT_CLIENT_DELEGATION_H

#include "client/io.h"

/* The MDS need not be asked for this open. */
bool delegation_allows(struct client *c, const struct cred *cred, const struct inode *i,
		       uint32_t flags);
/* Opens it so. Takes a reference of the caller's over on success. */
int delegation_open(struct client *c, const struct cred *cred, struct inode *i, uint32_t flags,
		    struct ll_file **ret_file) CHECK_RESULT;
/* It is closed. True: nobody need be told, the file and its reference are gone. */
bool delegation_close(struct ll_file *f);
/* When this returns 0 the MDS knows that the inode is open, if it is. Yields. */
int delegation_tell(struct client *c, struct inode *i) CHECK_RESULT;
/* The session is told what is open: from now on that is counted in d->n_read. */
void delegation_counted(struct idata *d);

#endif
