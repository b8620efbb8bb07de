/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/mounts.h"
#include "tools/progress.h"

#define SCHEME "leat:"

static bool is_alias(const char *text)
{
	struct stat st;

	return !strchr(text, '/') && stat(text, &st) < 0 && strcmp(text, ".") != 0;
}

int source_parse(const struct tool *t, const char *text, struct source *ret_source)
{
	struct source s = {.local = false};
	struct leat_inside in;
	char dir[PATH_MAX];
	int len = 0;

	if (strncmp(text, SCHEME, strlen(SCHEME)) == 0) {
		len = snprintf(s.name, sizeof(s.name), "%s", text + strlen(SCHEME));
	} else if (is_alias(text)) {
		len = snprintf(s.name, sizeof(s.name), "%s", text);
	} else if (!realpath(text, dir)) {
		return tool_error(t, exit_of_errno(errno),
				  "A directory that is not mounted here is written leat:/PATH.",
				  "%s: %m", text);
	} else if (mount_inside(dir, &in)) {
		snprintf(s.name, sizeof(s.name), "%s", in.path);
		mount_addresses(&in.mount, s.mds, sizeof(s.mds));
	} else {
		s.local = true;
		snprintf(s.name, sizeof(s.name), "%s", dir);
	}
	if (len >= (int)sizeof(s.name))
		return tool_too_long(t, text);
	*ret_source = s;
	return EXIT_OK;
}

int source_connect(const struct tool *t, const struct source *source, struct leat_fs **ret_fs)
{
	char why[LEAT_MESSAGE_SIZE] = "";
	struct leat_options o = {
		.size = sizeof(o), .name = "leat", .message = why, .message_size = sizeof(why)};
	int rc;

	if (source && source->local)
		return EXIT_OK;
	if (source && source->mds[0])
		o.mds = source->mds;
	rc = leat_open_fs(t->conf, &o, ret_fs);
	if (rc == 0)
		return EXIT_OK;
	int code = exit_of_status(rc);
	if (code == EXIT_TIMEOUT || code == EXIT_FAILED)
		code = EXIT_UNREACHABLE;
	return tool_error(t, code, tool_server_hint(t, rc),
			  "no connection to the metadata server of %s: %s",
			  source && source->mds[0] ? source->mds : tool_conf_name(t), why);
}

static void on_progress(void *arg, const struct leat_stage_progress *p)
{
	char text[128];

	snprintf(text, sizeof(text), "%s, %llu of %llu files", p->phase,
		 (unsigned long long)p->files, (unsigned long long)p->files_total);
	progress_update(arg, p->bytes, p->bytes_total, text);
}

void stage_options_init(struct leat_stage_options *o, struct progress *p, const char *what)
{
	catch_interrupts();
	progress_init(p, what);
	memset(o, 0, sizeof(*o));
	o->size = sizeof(*o);
	o->progress = on_progress;
	o->arg = p;
	o->cancel = interrupt_flag();
}

static const char *hint_of(int code)
{
	switch (code) {
	case EXIT_PARTIAL:
		return "Run the same command again to continue.";
	case EXIT_INTERRUPTED:
		return "Run the same command again: data that was kept is not copied again.";
	case EXIT_NO_SPACE:
		return "`leat stage ls` shows the copies there, `leat stage evict` removes one.";
	case EXIT_LOCAL_CORRUPT:
		return "`leat stage in` repairs the copy.";
	case EXIT_SOURCE_CORRUPT:
		return "The file is damaged, or not of the format of its name: repair it, or move "
		       "it away. No damaged data was kept.";
	case EXIT_USAGE:
		return "NAME@VERSION of a data set, or a directory: /PATH, leat:/PATH; `leat stage "
		       "--help` says more.";
	case EXIT_UNREACHABLE:
		return "`leat status` shows which servers answer.";
	case EXIT_FAILED:
		return "Remove the cause and run the same command again: copied data is kept.";
	case EXIT_TIMEOUT:
		return "Run the same command again to continue; `leat status` shows which servers "
		       "answer.";
	case EXIT_MISSING:
		return "`leat dataset ls` shows the data sets; if files have changed, create a "
		       "new version.";
	case EXIT_PERMISSION:
		return "The user who stages must be able to read the source and to write to the "
		       "directory of --to.";
	default:
		return NULL;
	}
}

int stage_failed(const struct tool *t, int rc, const struct leat_stage_result *r)
{
	char size[SIZE_TEXT], missing[64] = "";
	int code = r->code ? r->code : exit_of_errno(-rc);

	if (interrupted())
		code = EXIT_INTERRUPTED;
	if (r->code == LEAT_STAGE_NO_CAPACITY && r->bytes_missing)
		snprintf(missing, sizeof(missing), " (%s more needed)",
			 format_size(r->bytes_missing, size));
	return tool_error(t, code, hint_of(code), "%s: %s%s", leat_stage_code_text(code),
			  r->message[0] ? r->message : strerror(-rc), missing);
}

int stage_error(const struct tool *t, int rc, const char *what)
{
	int code = exit_of_status(rc);

	switch (-rc) {
	case EAGAIN:
		return tool_error(t, EXIT_NOT_READY, "`leat stage status` shows the progress.",
				  "%s is not ready", what);
	case EEXIST:
		return tool_error(t, EXIT_USAGE, NULL, "%s: several copies match, or the name "
						       "exists already",
				  what);
	case EBUSY:
		return tool_error(t, EXIT_FAILED, "Wait for the processes that use it.",
				  "%s is in use", what);
	case EINVAL:
		return tool_error(t, code,
				  "NAME@VERSION of letters, digits, . _ and -; or 6 digits of an "
				  "id that `leat stage ls` shows.",
				  "%s is not a name of a data set", what);
	default:
		if (rc == -ENOENT && !strchr(what, '/'))
			return tool_error(t, code, hint_of(code),
					  "%s: no such data set, and no copy of it", what);
		return tool_error(t, code, hint_of(code), "%s: %s", what, leat_strerror(rc));
	}
}
