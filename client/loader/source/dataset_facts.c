/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/dataset_facts.h"

#include <unistd.h>

#include "client/leat_impl.h"
#include "client/loader/source/last_error.h"

int dataset_check_pid(const struct leat_dataset *ds)
{
	if (getpid() == ds->pid)
		return 0;
	return error_say(
		-LE_NOTSUP,
		"the data set was opened by process %d and this is its forked child: open it "
		"here, or start the child by spawn",
		(int)ds->pid);
}

bool dataset_is_verified(const struct leat_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_parts; i++) {
		if (!dataset_is_verified(ds->parts[i]))
			return false;
	}
	return ds->n_parts || ds->m || ds->vol->origin == ORIGIN_SERVER;
}

bool dataset_is_remote(const struct leat_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_parts; i++) {
		if (dataset_is_remote(ds->parts[i]))
			return true;
	}
	return ds->n_parts == 0 && ds->vol->origin == ORIGIN_SERVER;
}
