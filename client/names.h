/*
 * Names of directories that this client has a lease on: which inode each is, or that there is none.
 * An entry is good while the lease is held that was there when its answer was asked for. Answers
 * may overtake each other; the directory's change counter tells which is the newest.
 *
 * Of a directory that this client has made all names are known while it keeps its lease: then what
 * is not there does not exist (inode.complete_us; 0 when that is over). Those of its names that had
 * to go, or of which answers told different things, are in a filter: of what may be in it the MDS
 * is asked. So names are still made without a question in a directory of a million.
 *
 * Owned by the client's loop. At most params.names_max, the least recently used go; and
 * NAME_FILTER_BYTES of filters for each of these.
 */
#ifndef LEAT_CLIENT_NAMES_H
#define LEAT_CLIENT_NAMES_H

#include "client/inode.h"

struct client;

#define NAME_FILTER_BYTES 16u

/* A name that this client is changing. */
struct name_change {
	struct list link;
	uint64_t hash;
};

struct names {
	struct list changing; /* struct name_change: a few */
	struct hmap map;
	struct list lru; /* oldest first */
	uint32_t n;
	size_t filter_room; /* bytes that filters may still take */
};

void names_init(struct names *ns, uint32_t names_max);
void names_fini(struct names *ns);
/* True: known; *ret_ino is 0 when there is no such name. */
bool names_find(struct client *c, const struct inode *dir, struct bytes name, struct ino *ret_ino);
/* An answer to a request of that time, with the directory's attributes as of then. own: this client
 * made it so. */
void names_told(struct client *c, const struct attr *dir, struct bytes name, struct ino ino,
		bool own, uint64_t sent_us);
/* So says a listing that was asked for then, of a directory that had that change counter. */
void names_listed(struct client *c, const struct inode *dir, uint64_t change, struct bytes name,
		  struct ino ino, uint64_t sent_us);
/* The same as names_find, good or not. */
bool names_peek(const struct client *c, struct ino dir, struct bytes name, struct ino *ret_ino);
/* It is being changed by this client, so others may see that before it knows: until the end nothing
 * is said of it. Of the directory's other names what is known holds. */
void names_change_begin(struct client *c, struct name_change *nc, struct ino dir,
			struct bytes name);
void names_change_end(struct name_change *nc);
/* It may have been changed, or be changed yet, by a request of this client whose answer is not
 * known. */
void names_unsure(struct inode *dir);
/* What it is now is not known. */
void names_forget(struct client *c, struct ino dir, struct bytes name);
/* Not all names of the directory are known any more; also before it is forgotten. */
void names_incomplete(struct client *c, struct inode *dir);

#endif
