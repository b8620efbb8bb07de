#include "common/rpc/transport.h"

#include <stdio.h>

void transport_destroy(struct transport *t)
{
	if (t != NULL)
		t->ops->destroy(t);
}

void transport_resources(struct transport *t, struct transport_resources *ret)
{
	*ret = (struct transport_resources){ 0 };
	if (t->ops->resources != NULL)
		t->ops->resources(t, ret);
}

int transport_numa_node(struct transport *t)
{
	return t->ops->numa_node != NULL ? t->ops->numa_node(t) : -1;
}

int transport_lend(struct transport *t, void *base, uint64_t len, struct lent_memory **ret_lent)
{
	*ret_lent = NULL;
	return t->ops->lend != NULL ? t->ops->lend(t, base, len, ret_lent) : 0;
}

void transport_take_back(struct transport *t, struct lent_memory *m)
{
	if (m != NULL)
		t->ops->take_back(t, m);
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
