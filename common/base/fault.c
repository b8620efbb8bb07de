/* The switches of fault.h. */
#include "common/base/fault.h"

#include <strings.h>

bool fault_planted_[N_FAULTS];

static const char *const names[] = {
#define X(name, text) #name,
	FAULT_TABLE(X)
#undef X
};

bool fault_plant(const char *name)
{
	for (int i = 0; i < N_FAULTS; i++)
		if (strcasecmp(names[i], name) == 0) {
			fault_planted_[i] = true;
			return true;
		}
	return false;
}

const char *fault_name(enum fault f)
{
	return names[f];
}
