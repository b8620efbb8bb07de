/*
 * Requests that are repeated until they are answered: the one place that knows when and how.
 * By the class of the status (common/base/status.h): never; the same server after a back-off; after
 * a reconnect (which rpc does by itself); after a refresh of the cluster map. All within the
 * deadline: params.request_timeout_ms, or the fiber's own if that is earlier. What is left of
 * transport errors then is -LE_IO.
 *
 * Owned by the client's loop. All of it yields.
 */
#ifndef LEAT_CLIENT_RETRY_H
#define LEAT_CLIENT_RETRY_H

#include "common/rpc/rpc.h"

struct chain;
struct client;
struct route;
struct target;

struct retry {
	struct client *c;
	uint64_t deadline_us;
	uint64_t backoff_us, attempt_us;
	bool unknown; /* a former attempt may have been executed */
	/* Whose members answer, NULL: nobody's or not known yet. When it has others beside the one
	 * that was asked, a failure means that the map may have changed. */
	const struct chain *chain;
	uint32_t n_moves; /* attempts made at once because the chain had changed */
};

void retry_begin(struct retry *r, struct client *c);
/* The deadline of the next attempt: a lost frame must not cost the whole time. */
uint64_t retry_attempt_deadline(struct retry *r);
/* After a failed attempt: 0: try again (has waited), else what to return to the caller. */
int retry_next(struct retry *r, int status) CHECK_RESULT;

/*
 * One operation at the MDS. rep is zeroed first; its bytes point into call, which the caller ends
 * with rpc_call_fini whatever was returned. Mutations get a (slot, seq) of the session.
 */
int mds_call(struct client *c, uint16_t op, const void *req, void *rep,
	     struct rpc_call *call) CHECK_RESULT;
/* The same, for what the MDS counts once it has got it: who is interrupted meanwhile hears the
 * answer all the same, and is interrupted then. */
int mds_call_to_end(struct client *c, uint16_t op, const void *req, void *rep,
		    struct rpc_call *call) CHECK_RESULT;
/* The same, for what ends something that the MDS counts: it is asked for as long as the session and
 * the client last, in a fiber for which nobody waits. Beyond its time it counts in *n_late. */
int mds_call_lasting(struct client *c, uint16_t op, const void *req, void *rep,
		     struct rpc_call *call, uint32_t *n_late) CHECK_RESULT;
/* As mds_call_to_end, for what answers to recalls wait for. 0 without an answer when *done becomes
 * true: what a new connection begins with has seen to it, and it is not asked again. */
int mds_call_first(struct client *c, uint16_t op, const void *req, void *rep, struct rpc_call *call,
		   const bool *done) CHECK_RESULT;

/*
 * One operation at a member of the chain that has chunk idx of the layout; which one, and who has
 * answered, is in route (route.h), zeroed or left by a former call for the same chunk. call: op,
 * req, rep and bulk are filled in by the caller, who also calls rpc_call_fini. A mutation keeps its
 * (slot, seq) of the chain whoever answers in the end; call->accepted is also called when that is
 * no longer so (ret_accepted), and it is repeated. -LE_BAD_CAP and -LE_SESSION_GONE come back to
 * the caller, who has to renew what is in req; -LE_CORRUPT when every member's copy is damaged.
 */
int oss_call(struct client *c, const struct layout *l, uint64_t idx, struct rpc_call *call,
	     struct route *route) CHECK_RESULT;

#endif
