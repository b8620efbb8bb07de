/*
 * What was under way at an object server that died. Others may have seen it, so the one that comes
 * back serves nobody before every client has repeated what it had sent, and said so (oss_reclaim).
 * A change is a promise from the moment it is sent until it is answered, or accepted by the process
 * that runs now. Those that had been accepted come first, and the server is told when they are
 * through: what others have sent since may be of the same bytes.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_RECLAIM_H
#define LEAT_CLIENT_RECLAIM_H

#include "common/base/list.h"
#include "client/cluster_map.h"

struct promise {
	struct list link; /* in client.promises */
	struct client *c;
	const struct chain *chain;
	uint64_t life; /* of the client, when it was sent last or accepted */
	bool out;      /* being sent */
	bool unknown;  /* it was sent, and what became of it is not known */
	bool seen;     /* it was accepted, in whatever attempt */
	/* Of the call. */
	void (*accepted)(void *arg);
	void *accepted_arg;
};

void promise_begin(struct promise *p, struct client *c, struct rpc_call *call);
/* Around each attempt. status: what it returned. */
void promise_sent(struct promise *p, const struct chain *ch, struct rpc_call *call);
void promise_heard(struct promise *p, const struct rpc_call *call, int status);
void promise_end(struct promise *p, struct rpc_call *call);

/* There is a new connection to the target: tells it, in the background, when all is repeated. */
void reclaim_start(struct target *t);
/* Whether a former process of this client had anything to repeat is known now, and noted. */
void reclaim_resumed(struct client *c);

#endif
