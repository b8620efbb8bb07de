#include "common/rpc/transport.h"

#include <stdio.h>

void transport_destroy(struct transport *t)
{
	if (t != NULL)
		t->ops->destroy(t);
}

#ifndef HAVE_VERBS
bool transport_verbs_available(char *ret_text, size_t size)
{
	snprintf(ret_text, size, "this program was built without rdma-core");
	return false;
}
#endif
