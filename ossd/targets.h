/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of one process: one for each folder of data_dir, each with a separate loop,
 * transport and addresses, so that disks share nothing and need no locks. The first target's loop
 * runs on the calling thread, the others on threads "ossd-1", "ossd-2", ….
 *
 * A target ends alone if its disk fails or the metadata server refuses its store. The process ends
 * when the last target has ended.
 */
#ifndef LEAT_OSSD_TARGETS_H
#define LEAT_OSSD_TARGETS_H

#include "common/rpc/rpc.h"
#include "ossd/params.h"

#define TARGETS_MAX 64u

/* Returns the parameters of target i of a process that was configured with p: its folder, its
 * device, and the ports of listen and advertise + i (0 stays 0). -LE_NOENT: there is no target i.
 * -LE_CONFIG (logged). */
int targets_params(const struct ossd_params *p, uint32_t i,
		   struct ossd_params *ret_params) CHECK_RESULT;

struct targets_options {
	struct env *env;
	const struct ossd_params *params;
	const char *mds_addrs;
	struct rpc_key key;
	const char *ready_file; /* NULL: none */
	int signal_fd;          /* readable: stop */
	const char *transport;  /* auto, verbs or tcp */
};
/* Runs the targets until a signal, or until all have ended. Returns 0, or the status of the first
 * target, in configured order, that failed. */
int targets_run(const struct targets_options *o) CHECK_RESULT;

#endif
