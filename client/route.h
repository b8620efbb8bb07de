/*
 * To which member of a chain a request goes. What changes something goes to the head, and so does
 * what only the head knows; what is read may come from any member in sync: one on this host, else
 * spread by chunk and client, and rather one whose connection is there and who was quick lately.
 *
 * Owned by the client's loop. A route belongs to one operation and its repetitions.
 */
#ifndef LEAT_CLIENT_ROUTE_H
#define LEAT_CLIENT_ROUTE_H

#include "client/cluster_map.h"

#define ROUTE_ASKED_MAX (2 * MAP_MEMBERS_MAX)

struct route {
	uint64_t spread;       /* of members that are as good: the same number, the same member */
	struct chain *chain;   /* of the last attempt, NULL: none yet */
	struct target *target; /* who was asked last, NULL: nobody */
	bool head;             /* only the head knows */
	bool unknown;          /* what a change was answered does not say that it was not made */
	/* Of a change whose capability was refused: 0: there is another one, so that it is asked
	 * for again under the same number. NULL: it ends. Yields. */
	int (*renew)(void *arg);
	void *renew_arg;
	/* Members that have failed this operation: bad ones for good (what they hold is damaged),
	 * the others until everybody has been asked. */
	struct {
		const struct target *target;
		bool bad;
	} asked[ROUTE_ASKED_MAX];
	uint32_t n_asked;
};

/* May any member in sync answer it? */
bool route_any_member(uint16_t op);
/* The member to ask next; NULL: there is none that has not failed. Head: only that one. */
struct target *route_pick(const struct route *r, const struct chain *ch, uint64_t now_us);
/* The member asked last has failed. */
void route_failed(struct route *r, bool bad);
/* Those that are not bad may be asked again. */
void route_again(struct route *r);

#endif
