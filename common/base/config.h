/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat.conf: INI sections ([cluster] [mds] [ossd] [client] [mount] [agent]), parsed by libinih,
 * checked against parameter tables. `leat config check` and the programs load a file by the same
 * functions, so they refuse the same files with the same messages. A table is an X-macro in each
 * program's params.h. Struct, defaults, parsing, ranges, --help text and the manual's section are
 * generated from it.
 *
 *   #define OSSD_PARAMS(P) \
 *       P(u32,  data_sync_ms,  "ms",  0, 1000, 5, "longest wait for ...") \
 *       P(size, cache_size,    "B",   0, 1ULL << 40, 64 << 20, "...") \
 *       P(str,  data_dir,      "",    0, 0, "", "...")
 *
 * Types: bool, u32, u64, size (accepts 4K, 1M, 2G; binary); and texts, stored in the struct, of at
 * most CONFIG_STR_MAX - 1 bytes:
 *
 *   str    anything; at least min bytes, and at most max unless that is 0
 *   word   one of those in unit, "error | warn | info"
 *   addr   host:port without a scheme, or empty
 *   addrs  list of host:port, tcp:host:port, verbs:host:port; at least min of them; stored with one
 *          blank between two
 *   cores  auto, all, or a list of processors
 *
 * Lines: name = value. A # or ; at the beginning of a value or after a blank begins a comment; in
 * "quotes" or 'quotes' it does not, and blanks at the ends stay. Sections of other programs are
 * skipped. Unknown sections are refused with "file:line: ...", and so are, in this program's
 * sections, unknown names, names that are set twice and values that do not match their type.
 */
#ifndef LEAT_COMMON_BASE_CONFIG_H
#define LEAT_COMMON_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"

#define CONFIG_STR_MAX  1024
#define CONFIG_ERR_SIZE 1536 /* holds any message of config_load, except with the longest paths */
#define CONFIG_PATH    "/etc/leat/leat.conf"

/* The texts are the types from CONFIG_str on. */
enum config_type {
	CONFIG_bool,
	CONFIG_u32,
	CONFIG_u64,
	CONFIG_size,
	CONFIG_str,
	CONFIG_word,
	CONFIG_addr,
	CONFIG_addrs,
	CONFIG_cores
};

struct config_param {
	const char *name;
	enum config_type type;
	size_t offset; /* of the member in the params struct */
	const char *unit; /* of a word: its values, with " | " between them */
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
#define CONFIG_MEMBER_word(name) char name[CONFIG_STR_MAX];
#define CONFIG_MEMBER_addr(name) char name[CONFIG_STR_MAX];
#define CONFIG_MEMBER_addrs(name) char name[CONFIG_STR_MAX];
#define CONFIG_MEMBER_cores(name) char name[CONFIG_STR_MAX];
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
#define CONFIG_DEF_word(d) .def = (d)
#define CONFIG_DEF_addr(d) .def = (d)
#define CONFIG_DEF_addrs(d) .def = (d)
#define CONFIG_DEF_cores(d) .def = (d)
/* Use: #define ROW(...) CONFIG_ROW(struct ossd_params, __VA_ARGS__) then OSSD_PARAMS(ROW) */
#define CONFIG_ROW(stype, ptype, pname, punit, pmin, pmax, pdef, phelp) \
	{ .name = #pname, .type = CONFIG_##ptype, .offset = offsetof(stype, pname), .unit = punit, \
	  .min = pmin, .max = pmax, CONFIG_DEF_##ptype(pdef), .help = phelp },

/* Parameters of [cluster], which every program reads (defined in config.c). */
#define CLUSTER_PARAMS(P) \
	P(str, name, "", 0, 0, "leat", "name of the cluster, for people") \
	P(str, key_file, "", 1, 0, "/etc/leat/cluster.key", \
	  "file with the shared cluster key: 64 hex digits, mode 0600") \
	P(addrs, mds, "", 1, 0, "127.0.0.1:7440", "addresses of the metadata server: host:port, tcp:host:port or verbs:host:port, ...") \
	P(word, transport, "auto | verbs | tcp", 0, 0, "auto", \
	  "what connections use; auto: RDMA where both ends have it, else TCP")
struct cluster_params {
	CLUSTER_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param cluster_param_table[];
extern const int n_cluster_params;

/* Sets all parameters to their defaults. */
void config_defaults(const struct config_section *sections, int n_sections);
/* Returns the file that config_load reads for this path. ret_may_be_missing: if the file does not
 * exist, config_load uses the defaults. */
const char *config_path(const char *path, bool *ret_may_be_missing);
/* Sets the defaults, then reads the file. path NULL: $LEAT_CONF, else /etc/leat/leat.conf, which
 * may be missing (then the defaults apply). Returns 0, or -LE_CONFIG with "file:line: what" in
 * ret_err, which is printable for any content of the file. */
int config_load(const char *path, const struct config_section *sections, int n_sections,
		char *ret_err, size_t err_size) CHECK_RESULT;
/* Sets one parameter, from "name=value" of the command line or of -o options, with the same checks
 * as config_load(). Returns 0 or -LE_CONFIG. */
int config_set(const struct config_section *section, const char *name, const char *value,
	       char *ret_err, size_t err_size) CHECK_RESULT;
/* Implements --check-config of a program: calls judge(arg, path, …) for each file, or once with
 * NULL for the default file if there are none. Prints "FILE: good" to stdout, "PROGRAM: why" to
 * stderr. Returns the number of refused files. */
int config_check_files(const char *program, char *const *files, int n_files,
		       int (*judge)(void *arg, const char *path, char *err, size_t err_size),
		       void *arg);
/* Prints all parameters with unit, range, default and help, in the form of leat.conf.sample. */
void config_print_sample(const struct config_section *sections, int n_sections, FILE *out);
/* Prints the present values in that form. */
void config_print_values(const struct config_section *sections, int n_sections, FILE *out);
/* Parses "4096", "64K", "1.5G" to bytes. Returns 0 or -LE_CONFIG. */
int config_parse_size(const char *s, uint64_t *ret_bytes) CHECK_RESULT;

#endif
