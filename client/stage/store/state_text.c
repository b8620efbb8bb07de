/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the states of a copy and for the results of a job: calls of leat_stage.h. */
#include "client/include/leat/leat_stage.h"

#include <stddef.h>

const char *leat_stage_code_text(int code)
{
	static const struct {
		int code;
		const char *text;
	} texts[] = {
		{LEAT_STAGE_DONE, "done"},
		{LEAT_STAGE_INTERNAL, "failed"},
		{LEAT_STAGE_USAGE, "refused"},
		{LEAT_STAGE_NOT_READY, "not ready yet"},
		{LEAT_STAGE_TIMEOUT, "timed out"},
		{LEAT_STAGE_PARTIAL, "partial"},
		{LEAT_STAGE_SOURCE_CORRUPT, "source corrupt"},
		{LEAT_STAGE_LOCAL_CORRUPT, "local copy corrupt"},
		{LEAT_STAGE_NO_CAPACITY, "no capacity"},
		{LEAT_STAGE_SOURCE_GONE, "source missing or changed"},
		{LEAT_STAGE_PERMISSION, "permission denied"},
		{LEAT_STAGE_AGENT, "agent unreachable"},
		{LEAT_STAGE_CANCELLED, "cancelled"},
		{LEAT_STAGE_INTERRUPTED, "interrupted, resumable"},
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (texts[i].code == code)
			return texts[i].text;
	}
	return "unknown";
}

const char *leat_stage_state_text(int state)
{
	static const char *const texts[] = {
		"PARTIAL", "STAGING",  "READY",  "DEGRADED",  "PLANNED", "RESERVED", "STREAMABLE",
		"STALE",   "EVICTING", "FAILED", "CANCELLED", "GONE",    "SHARED"};
	return state >= 0 && state <= LEAT_COPY_SHARED ? texts[state] : "unknown";
}
