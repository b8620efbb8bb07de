/*
 * Which threads look at what they list. The kernel asks for names with attributes each time; who
 * wants names alone (a glob over 10^6 files) shall not pay for attributes, and who looks at each
 * entry, as ls -l or find -ls do, not for a lookup each. The kernel does not tell, since it answers
 * that by itself: so of every LISTERS_PROBE-th entry it is given the name alone. Who looks asks for
 * it; who has let LISTERS_PROBES of them pass gets names alone, until he does look at one.
 *
 * Directories say nothing: who walks a tree looks them up to open them.
 *
 * Owned by the mount's loop. Bounded: the oldest thread is forgotten, and begins anew.
 */
#ifndef LEAT_FUSE_LISTERS_H
#define LEAT_FUSE_LISTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LISTERS_MAX   64u
#define LISTERS_PROBE 64u
/* Enough for programs that list first and then look, in directories of ten thousand; fts(3) (find,
 * du, rm -r) reads up to 100,000 names. Who then looks gets them fetched behind his back. */
#define LISTERS_PROBES 200u

struct lister {
	pid_t thread;            /* 0: all those whom this daemon cannot see */
	uint32_t listed, probes; /* since it has looked at an entry */
	uint64_t names_of;       /* the directory whose names it was given alone; 0: none */
};

struct listers {
	uint32_t n, next;
	struct lister ring[LISTERS_MAX];
};

/* The thread goes on with a listing of that directory: does it want attributes, too? */
bool listers_want(struct listers *l, pid_t thread, uint64_t dir);
/* The thread gets an entry with attributes: shall they be left out, to see whether it asks? */
bool listers_probe(struct listers *l, pid_t thread);
/* The thread has looked up a name that is not a directory's. */
enum look {
	LOOK_OTHER,
	LOOK_FIRST, /* of those that it was given alone */
	LOOK_NEXT
};
enum look listers_looked(struct listers *l, pid_t thread, uint64_t dir);

#endif
