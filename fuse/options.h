/* The command line of mount.leat, as mount(8) calls it: SOURCE MOUNTPOINT [-sfnvh] [-o
 * name=value,...]. */
#ifndef LEAT_FUSE_OPTIONS_H
#define LEAT_FUSE_OPTIONS_H

#include "client/ll.h"
#include "fuse/params.h"

struct fuse_args;

struct mount_options {
	char source[1024]; /* "host:port,host:port" of the metadata server, or "leat": as leat.conf
			      says */
	char mountpoint[4096];
	char conf[1024];
	char log_file[1024];
	char kernel_opts[1024]; /* ro,nosuid,...: handed to the kernel */
	bool foreground;
	struct cluster_params cluster;
	struct client_params client;
	struct mount_params mount;
};

/* 0; 1: --help or --version was answered; negative: told on stderr. */
int mount_options_parse(int argc, char **argv, struct mount_options *ret_opts);
int mount_options_fuse_args(const struct mount_options *o, struct fuse_args *ret_args);

#endif
