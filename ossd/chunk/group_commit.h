/*
 * Group commit: changes join an open group; two fibers make groups durable one after another,
 * pipelined: while the index commits one group, the data file is synced for the next, and a
 * third collects.
 *
 *   join → [open] → fdatasync of the data file → [synced] → commit of the index → committed → wake
 *
 * Groups are committed in the order they were open, and rows of one key end up in the order in
 * which they joined. A failed sync or commit is final: this and all later groups fail with it. So
 * is what others tell of the data file by group_commit_fail.
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_GROUP_COMMIT_H
#define LEAT_OSSD_GROUP_COMMIT_H

#include "common/base/list.h"
#include "common/kv/kv.h"
#include "common/rt/fiber.h"

struct ossd_metrics;

#define COMMIT_GROUPS 3u
#define LAZY_OPS      32u
#define LAZY_US       8000u

struct commit_group {
	struct kv_batch *batch;
	struct list members; /* struct commit_member, in the order they joined */
	uint32_t n;
	uint64_t number;
	bool data;         /* something was written to the data file */
	bool urgent;       /* somebody waits for it */
	uint64_t since_us; /* the first has joined */
	struct waitq waiters;
	struct list link;
};

/* Embedded by what joins; must live until the group has ended. */
struct commit_member {
	struct list link;
	/* The group is durable. Must not yield. Not called when it failed. */
	void (*committed)(struct commit_member *m);
	/* It will never be. Must not yield. May be NULL. */
	void (*failed)(struct commit_member *m);
};

struct group_commit_options {
	struct env *env;
	struct kv *kv;
	struct env_file *data;
	bool sync;
	struct ossd_metrics *metrics;
	void *arg;
	/* Before a group goes to the index: add to its batch (the commit counter). */
	void (*before)(void *arg, struct kv_batch *b);
	/* It is durable, and so its members know. */
	void (*after)(void *arg);
};

struct group_commit {
	struct group_commit_options o;
	struct commit_group groups[COMMIT_GROUPS];
	struct commit_group *open;
	struct list free, synced;
	struct waitq work, synced_work, room;
	uint64_t next_number;
	uint64_t done, durable; /* groups up to here have ended; have ended well */
	int status;             /* sticky */
	bool stopping, sync_ended;
	struct latch fibers;
};

/* Starts the two fibers. */
int group_commit_start(struct group_commit *g, const struct group_commit_options *o) CHECK_RESULT;
/* Finishes what has joined. Yields. */
void group_commit_stop(struct group_commit *g);

/* The batch of the open group, to put rows into; then, without a yield between, join. */
struct kv_batch *group_commit_batch(struct group_commit *g);
/* m may be NULL (rows that nobody has to hear of). Returns the group's number. */
uint64_t group_commit_join(struct group_commit *g, struct commit_member *m, bool data);
/* The same for what nobody waits for: the group is committed when somebody urgent joins, when it
 * has LAZY_OPS members, or after LAZY_US. */
uint64_t group_commit_join_lazy(struct group_commit *g, struct commit_member *m, bool data);
/* Somebody waits now for what has joined. Does not yield. */
void group_commit_hurry(struct group_commit *g);
/* The disk has failed: the store takes no more writes, and its program ends. Said once. Does not
 * yield. */
void group_commit_fail(struct group_commit *g, int rc, const char *what);
/* Until the group is durable: 0 or the final failure. Not interruptible. Yields. */
int group_commit_wait(struct group_commit *g, uint64_t number) CHECK_RESULT;
/* Hurries and waits for everything that has joined so far. */
int group_commit_barrier(struct group_commit *g) CHECK_RESULT;

#endif
