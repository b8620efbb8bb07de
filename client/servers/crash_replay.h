/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repeats writes that were in flight at an object server when it crashed.
 *
 * An unstable write (in the sense of NFSv3) is a mutation that was sent and has no final answer
 * yet. The server may have accepted it, which makes it visible to other clients but not durable. So
 * a restarted server serves no session until every session has repeated its unstable writes and has
 * reported that with oss_replay_done. Accepted ones are repeated first, and the server is notified
 * when they are done: later writes of other clients may touch the same bytes.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SERVERS_CRASH_REPLAY_H
#define LEAT_CLIENT_SERVERS_CRASH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct chain;
struct client;
struct rpc_call;
struct target;

/* One unstable write. On the stack of its oss_call. */
struct unstable_write {
	struct list link; /* in client.unstable_writes */
	struct client *c;
	const struct chain *chain;
	uint64_t generation; /* value of client.server_generations when it was last sent or
	                      * accepted */
	bool out;      /* an attempt is in flight */
	bool unknown;  /* a previous attempt has an unknown outcome */
	bool seen;     /* a server has accepted it, in some attempt */
	/* The caller's hook call->accepted, saved for the time of the registration. */
	void (*accepted)(void *arg);
	void *accepted_arg;
};

/* Registers a mutation as unstable and takes over call->accepted. Does not yield. */
void unstable_begin(struct unstable_write *p, struct client *c, struct rpc_call *call);
/* Called before and after each attempt. status is the attempt's result. unstable_sent marks the
 * call as a repetition if a previous outcome is unknown. Neither yields. */
void unstable_sent(struct unstable_write *p, const struct chain *ch, struct rpc_call *call);
void unstable_answered(struct unstable_write *p, const struct rpc_call *call, int status);
/* Removes the registration and restores call->accepted. Does not yield. */
void unstable_end(struct unstable_write *p, struct rpc_call *call);

/* Called when a connection to the target is established. In the background, reports to the server
 * how far this session has repeated its unstable writes. Does not yield. */
void crash_replay_start(struct target *t);
/* Called when the client has determined whether the previous process left unstable writes. Until
 * then the client reports none as done. Does not yield. */
void crash_replay_resumed(struct client *c);

#endif
