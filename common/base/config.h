/*
 * leat.conf: INI sections ([cluster] [mds] [ossd] [client] [mount] [agent]),
 * parsed by libinih, checked against parameter tables. A table is an X-macro in
 * each program's params.h; struct, defaults, parsing, ranges, --help text and
 * the manual's section follow from it.
 *
 *   #define OSSD_PARAMS(P) \
 *       P(u32,  data_sync_ms,  "ms",  0, 1000, 5, "longest wait for ...") \
 *       P(size, cache_size,    "B",   0, 1ULL << 40, 64 << 20, "...") \
 *       P(str,  data_dir,      "",    0, 0, "", "...")
 *
 * Types: bool, u32, u64, size (accepts 4K, 1M, 2G; binary), str (borrowed from the
 * struct's own storage, at most CONFIG_STR_MAX bytes).
 * Unknown sections of *other* programs are skipped, unknown sections and unknown or
 * out-of-range values in our own are refused with "file:line: ...".
 */
#ifndef LEAT_BASE_CONFIG_H
#define LEAT_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"

#define CONFIG_STR_MAX 1024
#define CONFIG_PATH    "/etc/leat/leat.conf"

enum config_type { CONFIG_bool, CONFIG_u32, CONFIG_u64, CONFIG_size, CONFIG_str };

struct config_param {
	const char *name;
	enum config_type type;
	size_t offset; /* of the member in the params struct */
	const char *unit;
	uint64_t min, max;
	const char *def; /* textual default; an expression for numbers: see num_def */
	uint64_t num_def;
	const char *help;
};

struct config_section {
	const char *section; /* name in the file */
	const struct config_param *params;
	int n_params;
	void *values; /* the struct that the offsets are relative to */
};

/* Members and table rows from an X-macro table. */
#define CONFIG_MEMBER_bool(name) bool name;
#define CONFIG_MEMBER_u32(name) uint32_t name;
#define CONFIG_MEMBER_u64(name) uint64_t name;
#define CONFIG_MEMBER_size(name) uint64_t name;
#define CONFIG_MEMBER_str(name) char name[CONFIG_STR_MAX];
#define CONFIG_MEMBER(type, name, unit, min, max, def, help) CONFIG_MEMBER_##type(name)
#define CONFIG_DEF_bool(d) .num_def = (d)
/* `bool` is a macro of stdbool.h and may have been expanded on its way through a table. */
#define CONFIG__Bool CONFIG_bool
#define CONFIG_MEMBER__Bool(name) CONFIG_MEMBER_bool(name)
#define CONFIG_DEF__Bool(d) CONFIG_DEF_bool(d)
#define CONFIG_DEF_u32(d) .num_def = (d)
#define CONFIG_DEF_u64(d) .num_def = (d)
#define CONFIG_DEF_size(d) .num_def = (d)
#define CONFIG_DEF_str(d) .def = (d)
/* Use: #define ROW(...) CONFIG_ROW(struct ossd_params, __VA_ARGS__) then OSSD_PARAMS(ROW) */
#define CONFIG_ROW(stype, ptype, pname, punit, pmin, pmax, pdef, phelp) \
	{ .name = #pname, .type = CONFIG_##ptype, .offset = offsetof(stype, pname), .unit = punit, \
	  .min = pmin, .max = pmax, CONFIG_DEF_##ptype(pdef), .help = phelp },

/* Parameters of [cluster], which every program reads (defined in config.c). */
#define CLUSTER_PARAMS(P) \
	P(str, name, "", 0, 0, "leat", "name of the cluster, for people") \
	P(str, key_file, "", 0, 0, "/etc/leat/cluster.key", \
	  "file with the shared cluster key: 64 hex digits, mode 0600") \
	P(str, mds, "", 0, 0, "127.0.0.1:7440", "addresses of the metadata server: host:port, tcp:host:port or verbs:host:port, ...") \
	P(str, transport, "", 0, 0, "auto", "auto (RDMA where both ends have it, else TCP) | verbs | tcp")
struct cluster_params {
	CLUSTER_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param cluster_param_table[];
extern const int n_cluster_params;

/* Fills in the defaults. */
void config_defaults(const struct config_section *sections, int n_sections);
/* Defaults first, then the file. path NULL: $LEAT_CONF, else /etc/leat/leat.conf, which may be
 * missing (then defaults only). On failure -LE_CONFIG and ret_err holds "file:line: what". */
int config_load(const char *path, const struct config_section *sections, int n_sections,
		char *ret_err, size_t err_size) CHECK_RESULT;
/* One "name=value" from the command line or -o options, same checks. */
int config_set(const struct config_section *section, const char *name, const char *value,
	       char *ret_err, size_t err_size) CHECK_RESULT;
/* All parameters with unit, range, default and help, in the form of leat.conf.sample. */
void config_print_sample(const struct config_section *sections, int n_sections, FILE *out);
/* The values in force, same form. */
void config_print_values(const struct config_section *sections, int n_sections, FILE *out);
/* "4096", "64K", "1.5G" to bytes. */
int config_parse_size(const char *s, uint64_t *ret_bytes) CHECK_RESULT;

#endif
