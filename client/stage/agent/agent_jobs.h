/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of an agent: copies that it makes, or has made. All calls run on the agent's loop. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_JOBS_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_JOBS_H

#include "client/stage/agent/agent.h"
#include "common/proto/peer_proto.h"

/* Starts a job, or joins one that makes the same copy. Returns 0 with *ret_number, or an enum
 * leat_stage_code with the reason in message. Yields. */
int agent_job_start(struct agent *a, const struct peer_stage_req *req, char *message, size_t size,
		    uint64_t *ret_number) CHECK_RESULT;
/* Returns the newest job for `what`: a source, or with by_id an id. NULL: none. */
struct agent_job *agent_job_find(struct agent *a, struct bytes what, bool by_id);
/* Returns the job of that number; number 0: the newest for `what`. NULL: none. */
struct agent_job *agent_job_numbered(struct agent *a, uint64_t number, struct bytes what);
/* Cancels all jobs. Their fibers end later. Does not yield. */
void agent_jobs_end(struct agent *a);
/* Return the state of a job, and of the agent with all its jobs, as JSON: malloc'd, NULL without
 * memory. */
char *agent_job_json(const struct agent_job *j);
char *agent_json(struct agent *a);
void agent_job_free(struct agent_job *j);

#endif
