/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network.
 */
#ifndef LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_SIM_H
#define LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_SIM_H

#include "common/rpc/transport/transport.h"

struct sim;

/* Simulated network options. Frames between sim_procs are delayed, lost, doubled or reordered at
 * random from the seed, and links broken. Addresses are "NAME:port" of the listening process. */
struct transport_sim_options {
	uint64_t delay_us_max;  /* 0: 300 */
	uint32_t lose_ppm, double_ppm, reorder_ppm, break_ppm;
	/* maximum extra delay of the copy of a doubled frame; 0: as any frame */
	uint64_t double_late_us_max;
	uint32_t corrupt_ppm; /* flips a bit of the frame or of its data */
};

int transport_sim_create(struct sim *s, const struct transport_sim_options *opts,
			 struct transport **ret_transport) CHECK_RESULT;
void transport_sim_set_options(struct transport *t, const struct transport_sim_options *opts);
/* Drops all frames between two processes (by name) until called with cut false. */
void transport_sim_partition(struct transport *t, const char *a, const char *b, bool cut);

#endif
