/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/transport/transport.h"

#include <stdio.h>

#include "common/rpc/verbs/verbs_probe.h"

void transport_destroy(struct transport *t)
{
	if (t != NULL)
		t->ops->destroy(t);
}

void transport_resources(struct transport *t, struct transport_resources *ret)
{
	*ret = (struct transport_resources){0};
	if (t->ops->resources != NULL)
		t->ops->resources(t, ret);
}

int transport_numa_node(struct transport *t)
{
	return t->ops->numa_node != NULL ? t->ops->numa_node(t) : -1;
}

int transport_register(struct transport *t, void *base, uint64_t len,
		       struct user_memory **ret_memory)
{
	*ret_memory = NULL;
	return t->ops->register_memory != NULL ? t->ops->register_memory(t, base, len, ret_memory)
					       : 0;
}

void transport_unregister(struct transport *t, struct user_memory *m)
{
	if (m != NULL)
		t->ops->unregister_memory(t, m);
}

bool transport_lands(struct transport *t, const void *base, uint64_t len)
{
	return t->ops->lands == NULL || t->ops->lands(t, base, len);
}

#ifndef HAVE_VERBS
bool transport_verbs_available(char *ret_text, size_t size)
{
	snprintf(ret_text, size,
		 "this program was built without rdma-core: install its headers "
		 "(librdmacm-dev, libibverbs-dev) and build again");
	return false;
}
#endif
