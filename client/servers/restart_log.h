/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State in memory that outlives the process (struct ll_restart_state): the session, the (slot, seq)
 * of changes that the kernel may have no reply to, and the files with data that is not durable. A
 * process that starts with this memory continues where the previous one ended, at whatever
 * instruction: each step is recorded before its consequences.
 *
 * Owned by the client's loop. Does nothing for a client without such memory.
 */
#ifndef LEAT_CLIENT_SERVERS_RESTART_LOG_H
#define LEAT_CLIENT_SERVERS_RESTART_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct client;
struct inode_io;

/* Time allowed for the repetition of everything that the previous process had begun. */
#define SETTLED_US 5000000u

/* Keeps stores in program order. A compiler barrier suffices, because the memory is read by the
 * next process only. */
#define RESTART_LOG_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Takes over the recorded state, before the first session and before the slots are created. Does
 * not yield. */
void restart_log_start(struct client *c);
/* Takes the recorded slots out of the new slot table, so that no other change uses them. Does not
 * yield. */
void restart_log_reserve(struct client *c);
/* Records the session just opened, and sets client.resumes_other if it is not the previous
 * process's. Does not yield. */
void restart_log_session(struct client *c);

/* Takes a slot and sequence for a change at the MDS, like request_slot_take. A change that must be
 * executed once (op_must_run_once) keeps its pair until the kernel request that it serves has its
 * reply; if the previous process made the same change for the same request, the pair is that of the
 * previous process. restart_log_end releases all other slots. restart_log_begin yields. */
int restart_log_begin(struct client *c, uint16_t op, const void *req, uint64_t deadline_us,
	      uint32_t *ret_slot, uint64_t *ret_seq) CHECK_RESULT;
void restart_log_end(struct client *c, uint32_t slot);
/* Returns true if a second execution of the operation would be another change. */
bool op_must_run_once(uint16_t op, const void *req);
/* Releases the pair that the running kernel request keeps. Call it when its change was refused
 * without effect or no longer matters; the request's next change can then keep a pair. */
void restart_log_discard(struct client *c);
/* Returns true if the previous process made a change `op` for the running kernel request, which has
 * not repeated it yet. */
bool restart_log_has_previous(const struct client *c, uint16_t op);
/* Returns true once if the running kernel request has repeated a change of the previous process. */
bool restart_log_take_previous(const struct client *c);

/* Removes the mark of a file that is no longer open. Does not yield. */
void restart_mark_clear(struct inode_io *d);

#endif
