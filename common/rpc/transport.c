#include "common/rpc/transport.h"

void transport_destroy(struct transport *t)
{
	if (t != NULL)
		t->ops->destroy(t);
}
