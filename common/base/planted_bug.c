/* SPDX-License-Identifier: Apache-2.0 */
/* The switches of planted_bug.h. */
#include "common/base/planted_bug.h"

#include <strings.h>

bool planted_bugs_[N_PLANTED_BUGS];

static const char *const names[] = {
#define X(name, text) #name,
	PLANTED_BUG_TABLE(X)
#undef X
};

bool planted_bug_enable(const char *name)
{
	for (int i = 0; i < N_PLANTED_BUGS; i++)
		if (strcasecmp(names[i], name) == 0) {
			planted_bugs_[i] = true;
			return true;
		}
	return false;
}
