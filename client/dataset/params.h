/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of `leat agent`: section [agent] of leat.conf. */
#ifndef LEAT_CLIENT_DATASET_PARAMS_H
#define LEAT_CLIENT_DATASET_PARAMS_H

#include "common/base/config.h"

#define AGENT_PARAMS(P)                                                                            \
	P(str, dirs, "", 1, 0, "/var/lib/leat/stage",                                              \
	  "local folders of staged copies, space separated; files are spread over all of them")    \
	P(addrs, listen, "", 1, 0, "0.0.0.0:7460", "addresses to listen on, space separated")      \
	P(addrs, advertise, "", 0, 0, "",                                                          \
	  "address that other nodes connect to; empty: the host name and the port of listen")      \
	P(str, node, "", 0, 127, "", "name of this node, as in the scheduler; empty: host name")   \
	P(addr, metrics, "", 0, 0, "", "address of the /metrics page; empty: none")                \
	P(word, log_level, "error | warn | info | debug", 0, 0, "info", "what is logged")          \
	P(size, capacity, "B", 0, 1ULL << 60, 0,                                                   \
	  "space for all copies together; when it is full the least recently used are "            \
	  "evicted; 0: no limit but the space of the disks")                                       \
	P(size, max_rate, "B", 0, 1ULL << 50, 0,                                                   \
	  "bytes per second read from the servers by all jobs together; 0: no limit")              \
	P(u32, jobs_max, "", 1, 1024, 64, "staging jobs that run concurrently")                    \
	P(u32, buffers, "", 8, 4096, 32, "buffers of 1 MiB, for jobs and as many for other nodes") \
	P(u32, report_ms, "ms", 100, 60000, 1000,                                                  \
	  "time between reports of the copies here to the metadata server")                        \
	P(u32, rights_ms, "ms", 100, 3600000, 20000,                                               \
	  "how often the rights of copies are compared with those of their sources; above "        \
	  "20000, rights that are narrowed at the source may take more than a minute to be "       \
	  "narrowed here")                                                                         \
	P(u32, rights_rate, "", 0, 1000000000, 20000,                                              \
	  "names per second that this comparison looks up at the metadata server; 0: no limit")

struct agent_params {
	AGENT_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param agent_param_table[];
extern const int n_agent_params;

#endif
