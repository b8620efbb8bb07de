/* SPDX-License-Identifier: Apache-2.0 */
/* The suite over RDMA, on the first address of this machine that an RDMA device reaches.
 * network: host */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc/verbs/transport_verbs.h"
#include "common/rpc/verbs/verbs_probe.h"
#include "common/rt/env_real.h"
#include "common/rt/net.h"
#include "tests/unit/common/rpc/suite.h"

#define SKIPPED 77

#ifdef HAVE_VERBS
static struct transport_verbs_options options;

static int create(struct transport **ret_transport)
{
	return transport_verbs_create(&options, ret_transport);
}

static struct suite_real how = { .create = create, .scale = 1 };

static void run(void (*test)(struct bed *b))
{
	suite_real_run(&how, test);
}

static bool can_listen(struct transport *t, const char *addr)
{
	char real[NET_ADDR_TEXT_SIZE];
	struct listener *ls;

	if (t->ops->listen(t, loop_self(), addr, &ls, real) < 0)
		return false;
	t->ops->listener_close(ls);
	return true;
}

static void find_fiber(void *arg)
{
	char text[INET_ADDRSTRLEN];
	static char addr[sizeof(text) + 4];
	struct ifaddrs *all;
	struct transport *t;

	assert_int_equal(create(&t), 0);
	assert_int_equal(getifaddrs(&all), 0);
	for (struct ifaddrs *a = all; a != NULL && how.listen == NULL; a = a->ifa_next) {
		if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET)
			continue;
		inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, text,
			  sizeof(text));
		snprintf(addr, sizeof(addr), "%s:0", text);
		if (strncmp(text, "127.", 4) != 0 && can_listen(t, addr))
			how.listen = addr;
	}
	freeifaddrs(all);
	transport_destroy(t);
	loop_stop(arg);
}

static void find_address(void)
{
	struct env_real_options eo = { .n_workers = 1 };
	struct loop_options lo = { .name = "find" };
	struct env *env;
	struct loop *l;

	assert_int_equal(env_real_create(&eo, &env), 0);
	assert_int_equal(loop_create(env, &lo, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "find", find_fiber, l), 0);
	loop_run(l);
	loop_destroy(l);
	env_real_destroy(env);
}

static uint32_t number(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? (uint32_t)atoi(value) : 0;
}

int main(int argc, char **argv)
{
	char why[256];

	if (!transport_verbs_available(why, sizeof(why))) {
		printf("skipped: %s\n", why);
		return SKIPPED;
	}
	/* Limits of a small card, from the environment. */
	options.qps_max = number("VERBS_QPS");
	options.wrs_max = number("VERBS_WRS");
	options.sges_max = number("VERBS_SGES");
	options.inline_max = getenv("VERBS_INLINE_OFF") ? UINT32_MAX : 0;
	options.mrs_max = number("VERBS_MRS");
	options.credits = number("VERBS_CREDITS");
	options.recv_size = number("VERBS_RECV_SIZE");
	options.reads_max = number("VERBS_READS");
	options.srq = (enum verbs_srq)number("VERBS_SRQ");
	how.listen = getenv("VERBS_LISTEN");
	int rc = suite_peer_main(argc, argv, &how);
	if (rc >= 0)
		return rc;
	if (how.listen == NULL)
		find_address();
	if (how.listen == NULL) {
		printf("skipped: no RDMA device has an address\n");
		return SKIPPED;
	}
	how.program = argv[0];
	/* for the processes that tests start */
	(void)setenv("VERBS_LISTEN", how.listen, 1);
	/* one test alone */
	if (getenv("VERBS_TEST") != NULL)
		cmocka_set_test_filter(getenv("VERBS_TEST"));
	return suite_main("rpc over verbs", run);
}
#else
int main(void)
{
	char why[256];

	(void)transport_verbs_available(why, sizeof(why));
	printf("skipped: %s\n", why);
	return SKIPPED;
}
#endif
