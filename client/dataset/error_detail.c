/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/error_detail.h"

#include <stdarg.h>
#include <stdio.h>

int detail_set(struct detail *d, int rc, const char *path, uint64_t off, const char *fmt, ...)
{
	va_list ap;
	if (!d || d->rc)
		return rc;
	d->rc = rc;
	d->off = off;
	snprintf(d->path, sizeof(d->path), "%s", path ? path : "");
	va_start(ap, fmt);
	vsnprintf(d->what, sizeof(d->what), fmt, ap);
	va_end(ap);
	return rc;
}
