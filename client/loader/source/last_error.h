/* SPDX-License-Identifier: Apache-2.0 */
/* What leat_last_error returns: why the last call of this thread failed. */
#ifndef LEAT_CLIENT_LOADER_SOURCE_LAST_ERROR_H
#define LEAT_CLIENT_LOADER_SOURCE_LAST_ERROR_H

#include "client/dataset/error_detail.h"
#include "client/include/leat/leat_loader.h"

/* Both set the error of the calling thread and return rc. */
int error_set(int rc, const struct detail *d);
int error_say(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
