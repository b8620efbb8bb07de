/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport suite of tests/unit/common/rpc over real verbs; runs where RDMA_IP is the address
 * of a device.
 *
 *   conformance [--card small|full] [--scale N] [--brief]    SUITE_ONLY=part of a test's name
 *
 * --card small: a device with 64 queue pairs, 16 work requests in a queue, 2 pieces in a request,
 * nothing inline, few memory regions: all tests must pass there, too. --scale 34 makes 10^5
 * requests. --brief, for an emulated processor: all tests with less data and fewer moments.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc/verbs/transport_verbs.h"
#include "tests/unit/common/rpc/suite.h"

/* Soft RDMA in a guest, on a machine with other load. */
#define GUEST_SLOWNESS 10

static const struct transport_verbs_options small_card = {
	.credits = 8,
	.qps_max = 64,
	.wrs_max = 16,
	.sges_max = 2,
	.inline_max = UINT32_MAX,
	/* The largest pools are two of 64 slots and two of 120, each slot a region of its own, and
	 * the transport's own memory. */
	.mrs_max = 512,
	.reads_max = 1,
};

static const struct transport_verbs_options *card;

static int create(struct transport **ret_transport)
{
	return transport_verbs_create(card, ret_transport);
}

static struct suite_real how = {.create = create, .scale = 1};

static void run(void (*test)(struct bed *b))
{
	suite_real_run(&how, test);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {{"card", required_argument, NULL, 'c'},
					      {"scale", required_argument, NULL, 's'},
					      {"brief", no_argument, NULL, 'b'},
					      {NULL, 0, NULL, 0}};
	const char *ip = getenv("RDMA_IP"), *of_child = getenv("CONFORMANCE_CARD");
	static char listen[128], name[64];
	int rc, o;

	/* The processes that a test starts have this card, too. */
	if (of_child != NULL && strcmp(of_child, "small") == 0)
		card = &small_card;
	if (ip == NULL) {
		fprintf(stderr, "conformance: RDMA_IP, the address of a device, is not set\n");
		return 2;
	}
	snprintf(listen, sizeof(listen), "%s:0", ip);
	how.listen = listen;
	how.brief = getenv("CONFORMANCE_BRIEF") != NULL;
	rc = suite_peer_main(argc, argv, &how);
	if (rc >= 0)
		return rc;
	while ((o = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (o == 's') {
			how.scale = (uint32_t)strtoul(optarg, NULL, 10);
		} else if (o == 'b') {
			how.brief = true;
			setenv("CONFORMANCE_BRIEF", "yes", 1);
		} else if (o == 'c') {
			card = strcmp(optarg, "small") == 0 ? &small_card : NULL;
			setenv("CONFORMANCE_CARD", optarg, 1);
		} else {
			return 2;
		}
	}
	how.lazy_sends = getenv("RDMA_DEV") != NULL && strstr(getenv("RDMA_DEV"), "siw") != NULL;
	suite_slowness = GUEST_SLOWNESS;
	how.program = argv[0];
	snprintf(name, sizeof(name), "rpc over verbs%s", card != NULL ? ", a small card" : "");
	return suite_main(name, run);
}
