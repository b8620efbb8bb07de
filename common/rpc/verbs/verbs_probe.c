/* SPDX-License-Identifier: Apache-2.0 */
/* Detects RDMA on this machine; if there is none, says what to do about it. */
#include "common/rpc/verbs/verbs_probe.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static bool has_connection_manager(char *ret_text, size_t size)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	if (ch != NULL) {
		rdma_destroy_event_channel(ch);
		return true;
	}
	snprintf(ret_text, size, "no RDMA connection manager (%s): load the module rdma_ucm",
		 strerror(errno));
	return false;
}

bool transport_verbs_available(char *ret_text, size_t size)
{
	int n = 0;
	size_t used = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (list == NULL || n == 0) {
		snprintf(ret_text, size, "no RDMA device on this machine (`rdma link` lists them)");
		if (list != NULL)
			ibv_free_device_list(list);
		return false;
	}
	if (size > 0)
		ret_text[0] = '\0';
	for (int i = 0; i < n && used < size; i++) {
		int len = snprintf(ret_text + used, size - used, "%s%s", i > 0 ? " " : "",
				   ibv_get_device_name(list[i]));
		used += len > 0 ? (size_t)len : 0;
	}
	ibv_free_device_list(list);
	return has_connection_manager(ret_text, size);
}
