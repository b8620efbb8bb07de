/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User memory registered with the transport, and lookup of registered memory. Inside of
 * common/rpc/verbs only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_USER_MEMORY_H
#define LEAT_COMMON_RPC_VERBS_VERBS_USER_MEMORY_H

#include "common/rpc/verbs/verbs_impl.h"

/* See transport_register, _take_back and _lands. */
int verbs_register_user(struct verbs *v, void *base, uint64_t len, struct user_memory **ret_memory)
	CHECK_RESULT;
void verbs_unregister_user(struct verbs *v, struct user_memory *m);
/* Registers all user memory with a device that comes into use; under the lock. */
void user_memory_register(struct verbs *v, struct verbs_device *dev);
bool verbs_lands(struct verbs *v, const void *base, uint64_t len);
/* The registration with dev of memory that peers may access; NULL: none. Valid as long as the
 * memory is registered, or its pool exists. */
struct verbs_reg *verbs_reg_at(struct verbs_device *dev, const void *base, uint64_t len);

#endif
