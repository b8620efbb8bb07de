/* Parameters of `leat agent`: section [agent] of leat.conf. */
#ifndef LEAT_STAGE_PARAMS_H
#define LEAT_STAGE_PARAMS_H

#include "common/base/config.h"

#define AGENT_PARAMS(P)                                                                            \
	P(str, dirs, "", 0, 0, "/var/lib/leat/stage",                                              \
	  "local folders of staged copies, space separated; files are spread over all of them")    \
	P(str, listen, "", 0, 0, "0.0.0.0:7460", "addresses to listen on, space separated")        \
	P(str, advertise, "", 0, 0, "",                                                            \
	  "address that other nodes are told; empty: the host name and the port of listen")        \
	P(str, node, "", 0, 0, "", "name of this node, as schedulers know it; empty: host name")   \
	P(str, metrics, "", 0, 0, "", "address of the /metrics page; empty: none")                 \
	P(str, log_level, "", 0, 0, "info", "error | warn | info | debug")                         \
	P(size, capacity, "B", 0, 1ULL << 60, 0,                                                   \
	  "what all copies together may take up; beyond it the least recently used go; 0: no "     \
	  "limit but the space there is")                                                          \
	P(size, max_rate, "B", 0, 1ULL << 50, 0,                                                   \
	  "bytes per second read from the servers by all jobs together; 0: no limit")              \
	P(u32, jobs_max, "", 1, 1024, 64, "staging jobs at once")                                  \
	P(u32, buffers, "", 8, 4096, 32, "buffers of 1 MiB, for jobs and as many for other nodes") \
	P(u32, report_ms, "ms", 100, 60000, 1000,                                                  \
	  "how often the metadata server is told what is here")                                    \
	P(u32, rights_ms, "ms", 100, 3600000, 20000,                                               \
	  "how often the rights of copies are compared with those of their sources; above 20000 "  \
	  "it may take more than a minute until what is narrowed there is narrowed here")          \
	P(u32, rights_rate, "", 0, 1000000000, 20000,                                              \
	  "names per second that the metadata server is asked for by that; 0: no limit")

struct agent_params {
	AGENT_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param agent_param_table[];
extern const int n_agent_params;

#endif
