/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and classes of the one status table. */
#include "common/base/status.h"

#include <errno.h>
#include <stddef.h>

/* Peers may send any number. */
static unsigned number_of(int status)
{
	return status < 0 ? 0u - (unsigned)status : (unsigned)status;
}

const char *status_name(int status)
{
	switch (number_of(status)) {
#define X(name, number, parent, retry, text)                                                       \
	case number:                                                                               \
		return #name;
		STATUS_TABLE(X)
#undef X
	default:
		return "?";
	}
}

const char *status_text(int status)
{
	switch (number_of(status)) {
#define X(name, number, parent, retry, text)                                                       \
	case number:                                                                               \
		return text;
		STATUS_TABLE(X)
#undef X
	default:
		return "unknown status";
	}
}

int status_errno(int status)
{
	switch (number_of(status)) {
#define X(name, number, parent, retry, text)                                                       \
	case number:                                                                               \
		return parent;
		STATUS_TABLE(X)
#undef X
	default:
		return EIO;
	}
}

enum status_retry status_retry(int status)
{
	switch (number_of(status)) {
#define X(name, number, parent, retry, text)                                                       \
	case number:                                                                               \
		return RETRY_##retry;
		STATUS_TABLE(X)
#undef X
	default:
		return RETRY_NEVER;
	}
}

int status_from_errno(int err)
{
	/* Numbers below 1000 are the errno of the same name; the others are Leat's. */
	if (err <= 0 || err >= 1000)
		return -LE_IO;
	switch (err) {
#define X(name, number, parent, retry, text)                                                       \
	case number:                                                                               \
		return -number;
		STATUS_TABLE(X)
#undef X
	default:
		return -LE_IO;
	}
}
