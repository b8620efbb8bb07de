/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's session at the MDS. The connected hook of the connection opens it, and resumes it
 * after each reconnect. Pings keep it alive. If the MDS has dropped it, the client opens a new one;
 * write-back data of the old session is lost, and each open file with such data reports that once.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SERVERS_SESSION_H
#define LEAT_CLIENT_SERVERS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/types.h"

struct client;
struct client_options;
struct inode_io;
struct rpc_call;
struct rpc_client;

/* Notes that the MDS has answered a request that was sent at sent_us: the lease time starts again
 * at sent_us. Does not yield. */
void session_contact(struct client *c, uint64_t sent_us);

/* Returns when leases expire without further contact. Does not yield. */
uint64_t lease_until_us(const struct client *c);

/* Hooks through which a session acts on the files that are open under it. restart/reopen.c
 * implements them. */
struct session_ops {
	/* Ends all leases, also those of names that the kernel caches. goes_on: the session
	 * continues, and the server accepts reclaims. Yields. */
	void (*void_leases)(struct client *c, uint32_t lease_ms, bool goes_on);
	/* Reports open files and locks to a server that has restarted. Yields. */
	int (*reclaim)(struct client *c, uint16_t flags, bool all);
	/* Opens all open files in a new session. Returns 1 if some are left for later. Yields. */
	int (*reopen)(struct client *c, uint16_t flags);
	/* Tries again to reopen one file after a refusal. Yields. */
	int (*reopen_lost)(struct inode_io *d);
	/* Returns true if the inode waits to be reopened in a new session. */
	bool (*reopens)(struct client *c, struct ino ino);
	/* Called when session `old` has ended: reports its unflushed writes and its locks as
	 * lost. */
	void (*lost)(struct client *c, uint64_t old);
	/* Called when the server has recorded all open files again: makes fibers that wait for a
	 * lock request it again. */
	void (*taken_up)(struct client *c);
	/* Handles a callback of the MDS. Yields. */
	int (*callback)(void *arg, struct rpc_client *rpc, uint16_t op, const void *req, void *rep);
};

/* Connects to the MDS, opens the session and starts the keepalive fiber. Returns 0 or why there is
 * no session by deadline_us. Yields. */
int session_start(struct client *c, const struct client_options *opts,
		  uint64_t deadline_us) CHECK_RESULT;
/* Closes the session (best effort, one second at most) and the connection. Yields. */
void session_stop(struct client *c);
/* Opens a new session in place of session `gone`. Returns 0 also if another fiber has done so
 * already. Yields. */
int session_renew(struct client *c, uint64_t gone) CHECK_RESULT;

/* Waits until the file is open in the present session, at most for one operation's time. If its
 * reopening was refused, tries once more. Returns 0 or the error. Yields. */
int session_await(struct inode_io *d) CHECK_RESULT;
/* Makes one mutation while the session is being set up, in the slot reserved for the set-up,
 * without repetition. The reply must have no bytes fields. Returns its status. Yields. */
int session_setup_call(struct client *c, uint16_t flags, uint16_t op, const void *req,
		       void *rep) CHECK_RESULT;
/* Pings the MDS. Returns 0 if the session is alive; -LE_SESSION_GONE if it had ended and a new one
 * has been opened; another error if its state is unknown. Yields. */
int session_check(struct client *c) CHECK_RESULT;
/* Makes one request under the session, without repetition. call->flags are used, the rest of call
 * is overwritten. Returns its status. Yields. */
int session_call(struct client *c, uint16_t op, const void *req, void *rep,
		    struct rpc_call *call) CHECK_RESULT;

#endif
