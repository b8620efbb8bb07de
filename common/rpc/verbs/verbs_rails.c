/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/verbs/verbs_rails.h"

#ifndef HAVE_VERBS

uint32_t verbs_rails(struct rail ret_rails[RAILS_MAX])
{
	(void)ret_rails;
	return 0;
}

#else

#include <ifaddrs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#include "common/rt/loop.h"

#define STALE_US 2000000u

static int numa_node_of(const char *device)
{
	char path[128];
	int node = -1;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", device);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

static uint32_t prefix_of(const struct sockaddr *mask)
{
	const uint8_t *p;
	size_t n;
	uint32_t bits = 0;

	if (mask == NULL)
		return 0;
	if (mask->sa_family == AF_INET) {
		p = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
		n = 4;
	} else {
		p = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
		n = 16;
	}
	for (size_t i = 0; i < n; i++)
		bits += (uint32_t)__builtin_popcount(p[i]);
	return bits;
}

/* Only the connection manager can map an address to its device for every kind of device. */
static bool is_rail(struct rdma_event_channel *ch, const struct sockaddr *sa, size_t len,
		    struct rail *r)
{
	struct rdma_cm_id *id;
	bool found;

	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) != 0)
		return false;
	memset(&r->addr, 0, sizeof(r->addr));
	memcpy(&r->addr, sa, len);
	/* Port 0 binds to any port; a wildcard address would bind to no device. */
	found = rdma_bind_addr(id, &r->addr.sa) == 0 && id->verbs != NULL;
	if (found) {
		const char *name = ibv_get_device_name(id->verbs->device);
		snprintf(r->device, sizeof(r->device), "%s", name);
		r->port = id->port_num;
		r->numa_node = numa_node_of(r->device);
	}
	rdma_destroy_id(id);
	return found;
}

static uint32_t find_rails(struct rail *rails)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ifaddrs *all = NULL;
	uint32_t n = 0;

	if (ch == NULL)
		return 0;
	if (getifaddrs(&all) != 0)
		all = NULL;
	for (struct ifaddrs *a = all; a != NULL && n < RAILS_MAX; a = a->ifa_next) {
		const struct sockaddr_in6 *in6 = (const void *)a->ifa_addr;
		size_t len;

		if (a->ifa_addr == NULL || (a->ifa_flags & IFF_UP) == 0)
			continue;
		if (a->ifa_addr->sa_family == AF_INET)
			len = sizeof(struct sockaddr_in);
		else if (a->ifa_addr->sa_family == AF_INET6 &&
			 !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			len = sizeof(struct sockaddr_in6);
		else
			continue;
		if (is_rail(ch, a->ifa_addr, len, &rails[n]))
			rails[n++].prefix = prefix_of(a->ifa_netmask);
	}
	freeifaddrs(all);
	rdma_destroy_event_channel(ch);
	return n;
}

uint32_t verbs_rails(struct rail ret_rails[RAILS_MAX])
{
	static _Thread_local struct rail rails[RAILS_MAX];
	static _Thread_local uint64_t asked_us;
	static _Thread_local uint32_t n;

	if (asked_us == 0 || loop_now_us() - asked_us > STALE_US) {
		asked_us = loop_now_us();
		n = find_rails(rails);
	}
	memcpy(ret_rails, rails, n * sizeof(rails[0]));
	return n;
}

#endif
