/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"

static _Thread_local struct leat_error last_error = {.origin = ""};

const struct leat_error *leat_last_error(void)
{
	return &last_error;
}

int error_say(int rc, const char *fmt, ...)
{
	struct leat_error *e = &last_error;
	va_list ap;
	*e = (struct leat_error){.status = rc, .origin = "", .offset = UINT64_MAX};
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	return rc;
}

int error_set(int rc, const struct detail *d)
{
	static const char *const origins[] = {"", "local", "server", "decoder", "peer"};
	struct leat_error *e = &last_error;
	const char *what = d->what[0] ? d->what : status_text(rc);
	*e = (struct leat_error){.status = rc, .origin = origins[d->origin], .offset = d->off};
	memcpy(e->path, d->path, sizeof(e->path));
	if (d->path[0] && d->off != UINT64_MAX)
		snprintf(e->message, sizeof(e->message), "%.200s at offset %llu: %s", d->path,
			 (unsigned long long)d->off, what);
	else if (d->path[0])
		snprintf(e->message, sizeof(e->message), "%.230s: %s", d->path, what);
	else
		snprintf(e->message, sizeof(e->message), "%s", what);
	return rc;
}
