/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of names and attributes. Owned by the client's loop. */
#ifndef LEAT_CLIENT_OPS_LOOKUP_H
#define LEAT_CLIENT_OPS_LOOKUP_H

#include <stdint.h>

struct attr;
struct client;
struct cred;

/* Merges the attributes of a looked-up inode into the cache, and settles them if the file has
 * writers, which may include this client. sent_us: when the request was sent. ret_attr may be NULL.
 * Returns 0 or an error. Yields. */
int lookup_note(struct client *c, const struct cred *cred, const struct attr *attr,
		uint64_t sent_us, struct attr *ret_attr);

#endif
