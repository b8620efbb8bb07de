/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of mount.leat, as mount(8) calls it: SOURCE MOUNTPOINT [-sfnvh] [-o
 * name=value,...]. */
#ifndef LEAT_FUSE_OPTIONS_H
#define LEAT_FUSE_OPTIONS_H

#include "client/ll.h"
#include "fuse/params.h"

struct mount_options {
	/* As given: "host:port,host:port" of the metadata server; or "leat:" or "leat", for the one
	 * in leat.conf. Either with a "/path", the part of the namespace that is mounted. */
	char source[4096 + 1024];
	char subtree[4096]; /* that path, "" for all of it */
	char mountpoint[4096];
	char conf[1024];
	char log_file[1024];
	unsigned long ms_flags, ms_said; /* flags of mount(2); those that a word of -o sets */
	bool foreground, remount;
	struct cluster_params cluster;
	struct client_params client;
	struct mount_params mount;
};

/* Parses the command line and reads the configuration. Returns 0; 1 if --help, --version or
 * --check-config has been answered; or a negative status, after printing the problem on stderr.
 * Changes argv. mountpoint: used instead of that in argv; NULL: none given. */
int mount_options_parse(int argc, char **argv, const char *mountpoint,
			struct mount_options *ret_opts);

#endif
