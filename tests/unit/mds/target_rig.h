/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets that are made up, for tests of epochs, failures, returns and replacements: what each has
 * been told of its chains, whether it is alive and whether messages reach it. Whoever is told of
 * an epoch that is behind one it had as an answer fails the test.
 */
#ifndef LEAT_TESTS_UNIT_MDS_TARGET_RIG_H
#define LEAT_TESTS_UNIT_MDS_TARGET_RIG_H

#include "mds/cluster/cluster.h"
#include "tests/unit/mds/fixture.h"

#define TG_CHAINS_MAX 64u

/* What a target has been told, which survives the metadata server. */
struct tg_world {
	bool alive[FX_TARGETS], lose[FX_TARGETS]; /* lose: messages are answered by nobody */
	uint64_t process[FX_TARGETS];
	uint32_t epoch[FX_TARGETS][TG_CHAINS_MAX]; /* of chains, by id */
	uint32_t n_sent;
};
extern struct tg_world tg;

/* ---- in a body ---- */

/* The server is young: its own fiber looks at the targets by these functions from now on. */
struct cluster *tg_cluster(struct fx *f);
/* The same, with all targets alive, and chains of two members. */
struct cluster *tg_begin(struct fx *f);
/* cluster.send: tells a target. */
int tg_send(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
	    uint64_t deadline_us);
/* A target, from 0, registers; sends a heartbeat. What the server answers. */
int tg_enroll(struct fx *f, uint32_t i);
int tg_beat(struct fx *f, uint32_t i);
/* A target, from 1: its process ends; another one registers. */
void tg_die(struct cluster *c, uint32_t target);
int tg_come_back(struct fx *f, uint32_t target);
/* The server looks who is there, and tells those who stay. */
void tg_look(struct cluster *c);
/* All chains of two members where this target is to be filled are. */
int tg_sync_all(struct cluster *c, uint32_t target);
enum member_state tg_state(const struct chain *ch, uint32_t target);
/* It is one of the first two members. */
bool tg_has(const struct chain *ch, uint32_t target);
/* The chain whose first members these were when it was made: the first with both. */
struct chain *tg_chain(const struct cluster *c, uint32_t a, uint32_t b);

#endif
