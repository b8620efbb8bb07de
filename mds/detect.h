/*
 * Who is dead: certainly and at once when its connection has ended and nobody listens at its
 * addresses, else when it has been silent for its lease and a margin. Nobody is judged by silence
 * by a server that has just started or stood still itself: it could not hear.
 *
 * Owned by the loop: one fiber.
 */
#ifndef LEAT_MDS_DETECT_H
#define LEAT_MDS_DETECT_H

#include "mds/cluster.h"

/* The fiber's body; ends soon after c->stopping. */
void detect_run(struct cluster *c);
/* Something has happened that may be a death or a return. Does not yield. */
void detect_kick(struct cluster *c);
/* A connection has ended. Does not yield. */
void detect_peer_gone(struct cluster *c, uint64_t peer);
/* One look at everybody, and what follows of it. now_us - due_us: how late this comes. Yields. */
void detect_look(struct cluster *c, uint64_t due_us);

#endif
