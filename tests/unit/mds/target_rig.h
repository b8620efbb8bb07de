/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated targets, for tests of epochs, failures, returns and replacements: which epochs of its
 * chains each has received, whether it is alive, and whether messages reach it. A target that gets
 * an older epoch in a reply than it had fails the test.
 */
#ifndef LEAT_TESTS_UNIT_MDS_TARGET_RIG_H
#define LEAT_TESTS_UNIT_MDS_TARGET_RIG_H

#include "mds/cluster/cluster.h"
#include "tests/unit/mds/fixture.h"

#define TG_CHAINS_MAX 64u

/* What each target has received. It survives the metadata server. */
struct tg_world {
	bool alive[FX_TARGETS], lose[FX_TARGETS]; /* lose: messages get no reply */
	uint64_t process[FX_TARGETS];
	uint32_t epoch[FX_TARGETS][TG_CHAINS_MAX]; /* of chains, by id */
	uint32_t n_sent;
};
extern struct tg_world tg;

/* ---- in a body ---- */

/* Call it right after the server's start: its own fiber uses these functions from then on to probe
 * and notify targets. */
struct cluster *tg_cluster(struct fx *f);
/* Like tg_cluster, with all targets alive, and chains of two members. */
struct cluster *tg_begin(struct fx *f);
/* cluster.send: notifies a target. */
int tg_send(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
	    uint64_t deadline_us);
/* Target i + 1 registers, or sends a heartbeat. Returns the server's status. */
int tg_enroll(struct fx *f, uint32_t i);
int tg_beat(struct fx *f, uint32_t i);
/* A target (from 1) ends its process, or registers as a new process. */
void tg_die(struct cluster *c, uint32_t target);
int tg_come_back(struct fx *f, uint32_t target);
/* The server polls which targets are alive, and notifies those that stay. */
void tg_look(struct cluster *c);
/* Reports the target as filled in all chains of two members where it is SYNCING. */
int tg_sync_all(struct cluster *c, uint32_t target);
enum member_state tg_state(const struct chain *ch, uint32_t target);
/* Returns whether the target is one of the first two members. */
bool tg_has(const struct chain *ch, uint32_t target);
/* Returns the first chain with both targets, which were its first members when it was made. */
struct chain *tg_chain(const struct cluster *c, uint32_t a, uint32_t b);

#endif
