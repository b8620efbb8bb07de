/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which threads get attributes with the names that they list. The kernel always requests names with
 * attributes (READDIRPLUS). A program that wants names alone (a glob over 10^6 files) should not
 * pay for attributes, and one that reads the attributes of each entry (ls -l, find -ls) should not
 * pay for a lookup each. The kernel does not report which it is, since it answers those lookups
 * itself. So of every READDIRPLUS_PROBE-th entry it gets the name alone: a program that reads
 * attributes then causes a lookup. A thread that has let READDIRPLUS_PROBES such entries pass gets
 * names alone, until it looks one up.
 *
 * Lookups of directories are ignored, because a program that walks a tree looks them up to open
 * them.
 *
 * Owned by the mount's loop. Bounded: the oldest thread is dropped, and starts again. Nothing
 * yields.
 */
#ifndef LEAT_FUSE_OPS_READDIRPLUS_POLICY_H
#define LEAT_FUSE_OPS_READDIRPLUS_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define READDIRPLUS_THREADS_MAX   64u
#define READDIRPLUS_PROBE 64u
/* Enough for programs that first list and then look up, in directories of 10,000 entries; fts(3)
 * (find, du, rm -r) reads up to 100,000 names first. For a thread that looks up later the
 * attributes are fetched in the background (ll_prefetch_attrs). */
#define READDIRPLUS_PROBES 200u

struct readdir_thread {
	pid_t thread;            /* 0: all threads of other pid namespaces */
	uint32_t listed, probes; /* since its last lookup of an entry */
	uint64_t names_of;       /* the directory of which it got names alone; 0: none */
};

struct readdirplus_policy {
	uint32_t n, next;
	struct readdir_thread ring[READDIRPLUS_THREADS_MAX];
};

/* Call for each READDIRPLUS of the thread. True: its entries are to have attributes. */
bool readdirplus_wanted(struct readdirplus_policy *l, pid_t thread, uint64_t dir);
/* Call for each entry that is to have attributes. True: leave them out, to find out whether the
 * thread looks the entry up. */
bool readdirplus_probe(struct readdirplus_policy *l, pid_t thread);
/* Call when the thread has looked up a name that is not a directory's. Returns whether the thread
 * got that directory's names alone. */
enum look {
	LOOK_OTHER,
	LOOK_FIRST, /* the first of the names that it got alone */
	LOOK_NEXT
};
enum look readdirplus_lookup(struct readdirplus_policy *l, pid_t thread, uint64_t dir);

#endif
