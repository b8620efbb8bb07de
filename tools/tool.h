/*
 * What the subcommands of `leat` share: the global options, errors, exit statuses, numbers for
 * people. One thread; nothing here outlives the process.
 */
#ifndef LEAT_TOOLS_TOOL_H
#define LEAT_TOOLS_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/config.h"

/* Exit statuses: stable, and the same for every subcommand. In leat.1. */
enum exit_status {
	EXIT_OK = 0,
	EXIT_FAILED = 1,    /* input/output errors, and what should not happen */
	EXIT_USAGE = 2,     /* command line or leat.conf */
	EXIT_NOT_READY = 3, /* asked whether it is ready, and it is not */
	EXIT_TIMEOUT = 4,
	EXIT_PARTIAL = 5,
	EXIT_SOURCE_CORRUPT = 6,
	EXIT_LOCAL_CORRUPT = 7,
	EXIT_NO_SPACE = 8,
	EXIT_MISSING = 9,      /* no such file, data set or mount */
	EXIT_PERMISSION = 10,  /* of the file system or of the cluster (wrong key) */
	EXIT_UNREACHABLE = 11, /* no server or agent answers */
	EXIT_CANCELLED = 12,
	EXIT_INTERRUPTED = 75, /* a signal ended it; the same command goes on where it stopped */
};

struct tool {
	const char *command; /* "status"; for messages */
	const char *conf;    /* of --conf; NULL: $LEAT_CONF, else /etc/leat/leat.conf */
	bool json;
	struct cluster_params cluster;
};

struct command {
	const char *name;
	const char *summary;
	const char *usage; /* whole text of --help */
	bool own_h;        /* -h is an option of its own */
	int (*run)(struct tool *t, int argc,
		   char **argv); /* argv[0]: the name. Returns an exit status */
};
extern const struct command command_mount, command_umount, command_status, command_df,
	command_layout, command_quota, command_scrub, command_stage, command_dataset, command_bench,
	command_config, command_target, command_fsck, command_agent, command_cp, command_rm,
	command_du, command_export;

/* "leat COMMAND: message", then a line with what to do next (hint may be NULL) on stderr; with
 * --json also
 * {"error":{...}} on stdout. Returns code. */
int tool_error(const struct tool *t, int code, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same for wrong command lines: EXIT_USAGE, with a pointer to --help. */
int tool_usage(const struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* mount_upgrade.c: of the mount where path is. An exit status. */
int mount_upgrade(struct tool *t, const char *path);
/* That a path is longer than any may be. Returns its exit status. */
int tool_too_long(const struct tool *t, const char *path);
int exit_of_status(int status);
int exit_of_errno(int err);

/* What to do where the metadata server could not be asked, by the status of that. */
const char *tool_server_hint(const struct tool *t, int status);
/* The configuration that counts. */
const char *tool_conf_name(const struct tool *t);

/* [cluster] of leat.conf into t->cluster. 0, or an exit status after a message. */
int tool_load_conf(struct tool *t);
/* Prints the value and drops the reference: indented for people, one line for programs. */
int tool_print_json(json_t *value);

/* A path or what is said of one, for JSON, which is UTF-8: U+FFFD for each byte that is not. */
json_t *tool_json_text(const char *text);

/* Writes a text in which names may stand: \\xNN for each byte that could drive a terminal (control
 * bytes, also those of Latin-1 in UTF-8) and for each that is not UTF-8. */
void tool_write_text(FILE *f, const char *text);
/* A name on stdout: the same where that is a terminal; else its bytes, for programs. */
void tool_write_name(const char *name);

/* "1.5 GiB", "17 B" */
#define SIZE_TEXT 24
const char *format_size(uint64_t bytes, char buf[SIZE_TEXT]);
/* Of a command line option; false after a message. */
bool parse_size_arg(const struct tool *t, const char *name, const char *text, uint64_t *ret_bytes);
bool parse_number_arg(const struct tool *t, const char *name, const char *text, uint64_t max,
		      uint64_t *ret_number);
double now_s(void); /* monotonic */

/* Ctrl-C and SIGTERM raise a flag instead of ending the process, so that what was begun is tidied
 * away. A second one ends it. */
void catch_interrupts(void);
bool interrupted(void);
const volatile int *interrupt_flag(void); /* for libraries: non-zero after a signal */

/* The first of: beside this program, ../sbin from there, PATH, the usual sbin folders. False:
 * nowhere. */
bool find_program(const char *name, char *ret_path, size_t size);
/* Runs argv[0] (a path) and waits: its exit status, 128 + signal, or -errno. */
int run_program(const char *const argv[]);

/* ---- mounts.c ---- */
struct leat_mount {
	char source[1024];
	char mountpoint[4096];
};
/* The mount that path lies on; false when that is no Leat mount (ret_mount untouched). */
bool mount_of_path(const char *path, struct leat_mount *ret_mount);
/* Is mountpoint (canonical) a Leat mount? Works when its daemon is dead. */
bool mount_find(const char *mountpoint, struct leat_mount *ret_mount);
/* Where a canonical path lies within the namespace that is mounted there. */
struct leat_inside {
	struct leat_mount mount;
	char path[4096];
	bool others_below; /* other file systems are mounted below it */
};
bool mount_inside(const char *path, struct leat_inside *ret_in);
/* The servers' addresses where it was mounted by address, as in leat.conf; else "". */
void mount_addresses(const struct leat_mount *m, char *buf, size_t size);
/* The cluster that is mounted there instead of leat.conf's, after tool_load_conf. */
void mount_take_cluster(const struct leat_mount *m, struct tool *t);
/* The value of a leat.* attribute; NULL with errno set. malloc'd. */
char *virtual_attribute(const char *path, const char *name);

/* ---- progress.c ---- */
/* A line that is drawn over itself on a TTY (stderr), and every 10 s without one. */
struct progress {
	const char *what;
	double start_s, shown_s;
	bool tty, drawn;
};
void progress_init(struct progress *p, const char *what);
/* done of total bytes; text: what else to say (may be NULL). Cheap: draws at most 10 times a
 * second. */
void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *text);
/* The same of things that are no bytes: text says what; total 0: nobody knows, no bar.
 * The first call always draws. */
void progress_note(struct progress *p, uint64_t done, uint64_t total, const char *text);
/* Ends the line: with a full bar of total bytes on a TTY, or, 0, without a trace. */
void progress_finish(struct progress *p, uint64_t total);

#endif
