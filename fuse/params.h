/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the mount: section [mount] of leat.conf, and options of mount(8) of the same name.
 */
#ifndef LEAT_FUSE_PARAMS_H
#define LEAT_FUSE_PARAMS_H

#include "common/base/config.h"

#define MOUNT_PARAMS(P)                                                                            \
	P(addr, metrics_addr, "", 0, 0, "", "host:port of the /metrics page; empty: none")         \
	P(u32, requests_max, "", 8, 1024, 48, "large requests (1 MiB) in flight, at most")         \
	P(u32, max_background, "", 8, 4096, 128,                                                   \
	  "read-ahead and asynchronous requests of the kernel in flight, at most")                 \
	P(bool, local_locks, "", 0, 1, 0,                                                          \
	  "flock and fcntl locks hold on this mount alone; saves a request for each close")        \
	P(bool, ino32, "", 0, 1, 0,                                                                \
	  "inode numbers and directory offsets fit programs with 32-bit types")                    \
	P(bool, allow_other, "", 0, 1, 1, "users other than the one that mounts may use it")       \
	P(str, stage_dir, "", 0, 0, "",                                                            \
	  "folders with staged copies (leat stage in --to), which are read instead of the "        \
	  "servers")                                                                               \
	P(word, passthrough, "sealed | staged | off", 0, 0, "sealed",                              \
	  "which staged files the kernel reads itself")                                            \
	P(bool, supervise, "", 0, 1, 1,                                                            \
	  "the mount outlives its daemon: a supervisor starts another one")                        \
	P(u32, slow_ms, "ms", 0, 3600000, 1000, "requests that take longer are logged; 0: none")   \
	P(word, log_level, "error | warn | info | debug", 0, 0, "info", "what is logged")

struct mount_params {
	MOUNT_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param mount_param_table[];
extern const int n_mount_params;

#endif
