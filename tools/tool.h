/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands of `leat` share: the global options, errors, exit statuses, printed numbers,
 * signals, child programs. For one thread.
 */
#ifndef LEAT_TOOLS_TOOL_H
#define LEAT_TOOLS_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/config.h"

/* Exit statuses, promised in leat.1: each has the same meaning for every subcommand. */
enum exit_status {
	EXIT_OK = 0,
	EXIT_FAILED = 1,    /* input/output errors, internal errors */
	EXIT_USAGE = 2,     /* command line or leat.conf */
	EXIT_NOT_READY = 3, /* a check (of a copy, of the cluster) found it not ready */
	EXIT_TIMEOUT = 4,
	EXIT_PARTIAL = 5,
	EXIT_SOURCE_CORRUPT = 6,
	EXIT_LOCAL_CORRUPT = 7,
	EXIT_NO_SPACE = 8,
	EXIT_MISSING = 9,      /* no such file, data set or mount */
	EXIT_PERMISSION = 10,  /* of the file system or of the cluster (wrong key) */
	EXIT_UNREACHABLE = 11, /* no server or agent answers */
	EXIT_CANCELLED = 12,
	EXIT_INTERRUPTED = 75, /* ended by a signal; the same command continues */
};

struct tool {
	const char *command; /* "status"; for messages */
	const char *conf;    /* of --conf; NULL: $LEAT_CONF, else /etc/leat/leat.conf */
	bool json;
	int exit_error; /* not 0: the exit status of every error from here on, of a command with
			 * exit statuses of its own */
	struct cluster_params cluster;
	/* The arguments after the name of the command, for messages. of: NULL until they are
	 * parsed. */
	const struct command *of;
	int argc;
	char **argv;
};

struct command {
	const char *name;
	const char *summary;
	const char *usage; /* the whole text of --help */
	bool own_h;        /* the command has its own option -h */
	/* True if the verb has this option (without --), for its --help; NULL: by the usage
	 * text. */
	bool (*option_of)(const char *verb, const char *option);
	int (*run)(struct tool *t, int argc,
		   char **argv); /* argv[0]: the name. Returns an exit status */
};
extern const struct command command_mount, command_umount, command_status, command_df,
	command_layout, command_quota, command_scrub, command_stage, command_dataset, command_bench,
	command_config, command_target, command_fsck, command_agent, command_cp, command_rm,
	command_du, command_export;

/* Prints "leat COMMAND: message" and a line with the next step (hint; may be NULL) on stderr; with
 * --json also {"error":{...}} on stdout. Returns the exit status: code, or t->exit_error. */
int tool_error(const struct tool *t, int code, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Prints an error of the command line, with a pointer to --help. Prints a better text instead if
 * the option or the verb is a typing error (help_explain). Returns EXIT_USAGE, or
 * t->exit_error. */
int tool_usage(const struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints that the path is too long. Returns EXIT_FAILED. */
int tool_too_long(const struct tool *t, const char *path);
/* Return the exit status for a negative status of common/base/status.h, and for a positive
 * errno. */
int exit_of_status(int status);
int exit_of_errno(int err);

/* Returns the next step after a request to the metadata server has failed with this status. Static
 * text. */
const char *tool_server_hint(const struct tool *t, int status);
/* Returns the path of the configuration: that of --conf, else $LEAT_CONF, else
 * /etc/leat/leat.conf. */
const char *tool_conf_name(const struct tool *t);

/* Loads [cluster] of leat.conf into t->cluster. Returns EXIT_OK, or EXIT_USAGE after a message. */
int tool_load_conf(struct tool *t);
/* Prints the value on stdout, indented on a terminal, else on one line, and drops the reference.
 * Returns EXIT_OK, or EXIT_FAILED if it cannot be printed. */
int tool_print_json(json_t *value);

/* Returns a JSON string of a text that may not be UTF-8: U+FFFD for each byte that is not. */
json_t *tool_json_text(const char *text);

/* Writes a text that may contain names: \\xNN for each control byte (also those of Latin-1 in
 * UTF-8) and for each byte that is not UTF-8. */
void tool_write_text(FILE *f, const char *text);
/* Writes a name to stdout: on a terminal as tool_write_text, else its bytes. */
void tool_write_name(const char *name);

/* Formats a number of bytes, "1.5 GiB" or "17 B", into buf, and returns buf. */
#define SIZE_TEXT 24
const char *format_size(uint64_t bytes, char buf[SIZE_TEXT]);
/* Parse the value of the option `name`: a size in bytes, or a number up to max. Return false after
 * a message. */
bool parse_size_arg(const struct tool *t, const char *name, const char *text, uint64_t *ret_bytes);
bool parse_number_arg(const struct tool *t, const char *name, const char *text, uint64_t max,
		      uint64_t *ret_number);
double now_s(void); /* seconds, monotonic */

/* From now on Ctrl-C, SIGTERM and SIGHUP set a flag instead of ending the process, so that the
 * command can remove what it has not finished. A second signal ends the process. */
void catch_interrupts(void);
bool interrupted(void);
const volatile int *interrupt_flag(void); /* for libraries: non-zero after a signal */

/* Finds a program: in the folder of this one, in ../sbin from there, in PATH, in the usual sbin
 * folders. Returns false if there is none. */
bool find_program(const char *name, char *ret_path, size_t size);
/* Runs argv[0] (a path) and waits until it ends. Returns its exit status, 128 + signal, or
 * -errno. */
int run_program(const char *const argv[]);

#endif
