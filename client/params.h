/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the client library: section [client] of leat.conf, and mount options of the same
 * name. */
#ifndef LEAT_CLIENT_PARAMS_H
#define LEAT_CLIENT_PARAMS_H

#include "common/base/config.h"

#define CLIENT_PARAMS(P)                                                                           \
	P(u32, request_timeout_ms, "ms", 100, 3600000, 30000,                                      \
	  "how long one operation may take, reconnects and retries included, before it fails "     \
	  "with EIO")                                                                              \
	P(u32, mount_timeout_ms, "ms", 100, 3600000, 10000,                                        \
	  "how long a mount waits for the metadata server")                                        \
	P(size, slot_memory, "B", 16 << 20, 1ULL << 40, 128 << 20,                                 \
	  "memory for data in flight: read-ahead, write-back, requests; never exceeded")           \
	P(size, readahead, "B", 0, 1 << 30, 8 << 20,                                               \
	  "bytes that are read ahead of a sequential reader; 0: no read-ahead")                    \
	P(size, dirty_max, "B", 0, 1ULL << 40, 64 << 20,                                           \
	  "written bytes, of all files, that may wait in memory (write-back); 0: every write "     \
	  "waits for the servers")                                                                 \
	P(u32, dirty_ms, "ms", 0, 60000, 1000,                                                     \
	  "written data is sent to the servers after at most this time")                           \
	P(u32, writes_in_flight, "", 1, 256, 32,                                                   \
	  "write requests in flight to one chain, at most")                                        \
	P(u32, hedge_ms, "ms", 0, 10000, 50,                                                       \
	  "a read that takes longer is sent to another member of the chain too; earlier, from "    \
	  "10 ms on, while reads are fast; 0: never")                                              \
	P(u32, inodes_max, "", 1024, 100000000, 100000,                                            \
	  "inodes kept in memory beyond those in use, at most")                                    \
	P(u32, names_max, "", 1024, 100000000, 200000, "names kept in memory, at most")            \
	P(u32, rails, "", 1, 8, 4,                                                                 \
	  "connections to one object server, each over a different RDMA port")                     \
	P(cores, cores, "", 0, 0, "auto",                                                          \
	  "processors of the loop: auto (near the RDMA device), all, or a list such as 0-3,8")     \
	P(u32, spin_us, "us", 0, 1000, 50, "busy wait for a reply before the thread sleeps")

struct client_params {
	CLIENT_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param client_param_table[];
extern const int n_client_params;

#endif
