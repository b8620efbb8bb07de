/*
 * Names of directories that this client has a lease on: which inode each is, or that there is none.
 * An entry is good while the lease is held that was there when its answer was asked for. Answers
 * may overtake each other; the directory's change counter tells which is the newest.
 *
 * Of a directory that this client has made all names are known while it keeps its lease: then what
 * is not there does not exist (inode.complete_us; 0 as soon as anything is not sure).
 *
 * Owned by the client's loop. At most params.names_max, the least recently used go.
 */
#ifndef LEAT_CLIENT_NAMES_H
#define LEAT_CLIENT_NAMES_H

#include "client/inode.h"

struct client;

struct names {
	struct hmap map;
	struct list lru; /* oldest first */
	uint32_t n;
};

void names_init(struct names *ns);
void names_fini(struct names *ns);
/* True: known; *ret_ino is 0 when there is no such name. */
bool names_find(struct client *c, const struct inode *dir, struct bytes name, struct ino *ret_ino);
/* An answer to a request of that time, with the directory's attributes as of then. own: this client
 * made it so. */
void names_told(struct client *c, const struct attr *dir, struct bytes name, struct ino ino,
		bool own, uint64_t sent_us);
/* The same, good or not. */
bool names_peek(const struct client *c, struct ino dir, struct bytes name, struct ino *ret_ino);
/* What it is now is not known. */
void names_forget(struct client *c, struct ino dir, struct bytes name);

#endif
