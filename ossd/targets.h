/*
 * The targets of one process: one for each folder of data_dir, each with a loop, a transport and
 * addresses of its own, so that nothing is shared between disks and nothing is locked. The
 * first one's loop runs on the calling thread, the others on threads "ossd-1", "ossd-2", ….
 *
 * A target whose disk fails, or whose store the metadata server refuses, goes out of service alone;
 * the process ends when the last one has.
 */
#ifndef LEAT_OSSD_TARGETS_H
#define LEAT_OSSD_TARGETS_H

#include "common/rpc/rpc.h"
#include "ossd/params.h"

#define TARGETS_MAX 64u

/* Parameters of target i of a process that was configured with p: its folder, its device, and the
 * ports of listen and advertise + i (0 stays 0). -LE_NOENT: there is no i-th; -LE_CONFIG with a
 * log line. */
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
/* Until a signal or until no target is left: 0, or why the first one ended. */
int targets_run(const struct targets_options *o) CHECK_RESULT;

#endif
