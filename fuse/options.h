/* The command line of mount.leat, as mount(8) calls it: SOURCE MOUNTPOINT [-sfnvh] [-o
 * name=value,...]. */
#ifndef LEAT_FUSE_OPTIONS_H
#define LEAT_FUSE_OPTIONS_H

#include "client/ll.h"
#include "fuse/params.h"

struct fuse_args;

struct mount_options {
	/* As given: "host:port,host:port" of the metadata server, or "leat": as leat.conf says;
	 * either with a "/path", the part of the namespace that is mounted. */
	char source[4096 + 1024];
	char subtree[4096]; /* that path, "" for all of it */
	char mountpoint[4096];
	char conf[1024];
	char log_file[1024];
	unsigned long ms_flags, ms_said; /* of mount(2); those that a word of -o tells of */
	bool foreground, remount;
	struct cluster_params cluster;
	struct client_params client;
	struct mount_params mount;
};

/* 0; 1: --help or --version was answered; negative: told on stderr. Changes argv. mountpoint:
 * where, whatever argv says, or NULL. */
int mount_options_parse(int argc, char **argv, const char *mountpoint,
			struct mount_options *ret_opts);
/* For libfuse, which is given a device that is mounted already. */
int mount_options_fuse_args(struct fuse_args *ret_args);

#endif
