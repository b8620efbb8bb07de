/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit: changes join an open group. Two fibers make groups durable one after another, in a
 * pipeline: while the index commits one group, the data file is synced for the next, and a third
 * collects.
 *
 *    join → [open] → fdatasync of the data file → [synced] → commit of the index → committed → wake
 *
 * Groups are committed in the order in which they were open, and changes of one key apply in the
 * order in which they joined. A failed sync or commit is final: this and all later groups fail.
 * Other code that detects a failure of the data file reports it by group_commit_fail, with the
 * same effect.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_GROUP_COMMIT_H
#define LEAT_OSSD_CHUNK_GROUP_COMMIT_H

#include "common/base/list.h"
#include "common/kv/kv.h"
#include "common/rt/fiber.h"

struct ossd_metrics;

#define COMMIT_GROUPS 3u
#define LAZY_OPS      32u
#define LAZY_US       8000u

struct commit_group {
	struct kv_batch *batch;
	struct list members; /* struct commit_member, in join order */
	uint32_t n;
	uint64_t number;
	bool data;         /* the data file was written */
	bool urgent;       /* a request waits for it */
	uint64_t since_us; /* when the first member joined */
	struct waitq waiters;
	struct list link;
};

/* Embedded by the change that joins. Must live until the group has ended. */
struct commit_member {
	struct list link;
	/* Called when the group is durable, not if it failed. Must not yield. */
	void (*committed)(struct commit_member *m);
	/* Called when the group has failed. Must not yield. May be NULL. */
	void (*failed)(struct commit_member *m);
};

struct group_commit_options {
	struct env *env;
	struct kv *kv;
	struct env_file *data;
	bool sync;
	struct ossd_metrics *metrics;
	void *arg;
	/* Called before a group is committed; may add to its batch (the commit counter). */
	void (*before)(void *arg, struct kv_batch *b);
	/* Called when a group is durable and its members were notified. */
	void (*after)(void *arg);
};

struct group_commit {
	struct group_commit_options o;
	struct loop *loop; /* the owner */
	struct commit_group groups[COMMIT_GROUPS];
	struct commit_group *open;
	struct list free, synced;
	struct waitq work, synced_work, space;
	uint64_t next_number;
	uint64_t done, durable; /* last group that has ended; last group that is durable */
	int status;             /* sticky */
	bool stopping, sync_ended;
	struct latch fibers;
};

/* Starts the two fibers. */
int group_commit_start(struct group_commit *g, const struct group_commit_options *o) CHECK_RESULT;
/* Commits what has joined, and ends the fibers. Yields. */
void group_commit_stop(struct group_commit *g);

/* Returns the batch of the open group. Add rows to it, then join without a yield in between. */
struct kv_batch *group_commit_batch(struct group_commit *g);
/* Joins the open group. m: notified of the group's end; may be NULL. Returns the group's number. */
uint64_t group_commit_join(struct group_commit *g, struct commit_member *m, bool data);
/* Like group_commit_join, for changes that no request waits for: the group is committed when an
 * urgent member joins, when it has LAZY_OPS members, or after LAZY_US. */
uint64_t group_commit_join_lazy(struct group_commit *g, struct commit_member *m, bool data);
/* Makes the open group urgent, because a request waits for it. Does not yield. */
void group_commit_expedite(struct group_commit *g);
/* Reports a failed disk: the store refuses further writes, and the program ends. Logged only for
 * the first failure. Does not yield. */
void group_commit_fail(struct group_commit *g, int rc, const char *what);
/* Waits until the group has ended. Returns 0 or the final failure. Not interruptible. Yields. */
int group_commit_wait(struct group_commit *g, uint64_t number) CHECK_RESULT;
/* Expedites and awaits everything that has joined so far. */
int group_commit_barrier(struct group_commit *g) CHECK_RESULT;

#endif
