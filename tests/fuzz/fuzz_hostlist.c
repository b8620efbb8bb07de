/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of nodes: the first byte selects the format. What is accepted is clean and has each name
 * once; written with commas it is an equal list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hostlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hostlist l, again;
	char err[128], *text;
	size_t len = 0;

	if (size == 0 || hostlist_parse(data[0] % (HOSTLIST_HYDRA + 1), (const char *)data + 1,
					size - 1, &l, err, sizeof(err)) < 0)
		return 0;
	text = malloc((size_t)l.n * (HOSTLIST_NAME_MAX + 1) + 1);
	ASSERT(text);
	for (uint32_t i = 0; i < l.n; i++)
		len += (size_t)snprintf(text + len, HOSTLIST_NAME_MAX + 2, "%s%s", i ? "," : "",
					l.names[i]);
	ASSERT(hostlist_parse(HOSTLIST_SLURM, text, len, &again, err, sizeof(err)) == 0);
	ASSERT(again.n == l.n);
	for (uint32_t i = 0; i < l.n; i++)
		ASSERT(strcmp(again.names[i], l.names[i]) == 0);
	free(text);
	hostlist_fini(&l);
	hostlist_fini(&again);
	return 0;
}
