/*
 * Threads whose open was refused, because the name that the kernel had cached is another file's by
 * now (ESTALE). The kernel then asks for every name of the path anew and opens what it finds, once:
 * a second ESTALE would be the program's. So what such a thread opens next belongs to its lookup
 * just before, however long that is ago on a busy machine, and is opened even if a rename has
 * replaced it since (LL_FOUND). If it looks nothing up and opens the same inode again, it has come
 * by no name but by a file that is open (/proc/self/fd/N), and is opened as well.
 *
 * Owned by the mount's loop. Bounded: the oldest is forgotten, which costs it an ESTALE at worst.
 */
#ifndef LEAT_FUSE_REFUSED_H
#define LEAT_FUSE_REFUSED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define REFUSED_MAX 64u

struct refused {
	uint32_t n, next;
	struct {
		pid_t thread; /* 0: none */
		uint64_t ino; /* what it was refused, or has found since */
	} ring[REFUSED_MAX];
};

/* The thread's open of ino was answered ESTALE. Thread 0, one that we cannot see, is never
 * remembered. */
void refused_add(struct refused *r, pid_t thread, uint64_t ino);
/* The thread has looked up a name: what it is, or 0 when there was none. */
void refused_found(struct refused *r, pid_t thread, uint64_t ino);
/* The thread opens ino: is that what it has just found after a refusal? Forgets the thread. */
bool refused_take(struct refused *r, pid_t thread, uint64_t ino);

#endif
