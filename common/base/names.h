/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files in JSON. Names are bytes: all but NUL and the slash. JSON requires text. Here a
 * name is encoded so that every name can be sent, and none is changed.
 *
 * In JSON a name that is UTF-8 is a string. For one that is not, KEY has U+FFFD for each byte that
 * is no character, for people; KEY_b64 has the exact bytes in base64 (RFC 4648, padded).
 *
 * Any thread. Names here are NUL-terminated.
 */
#ifndef LEAT_COMMON_BASE_NAMES_H
#define LEAT_COMMON_BASE_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Returns the number of bytes of the UTF-8 character at p, 0 for none, or NUL. */
size_t utf8_len(const char *p);
bool name_is_text(const char *name);
/* For terminals and logs: replaces each byte that is no UTF-8 and each control character, in place,
 * by a question mark. */
void text_make_printable(char *text);

/* Returns a text with names, for people only, as a string with U+FFFD for each byte that is no
 * character. NULL: no memory. */
json_t *text_json(const char *text);
/* Sets o[key], and o[key + "_b64"] if the name is not UTF-8. key has at most 32 bytes. Returns 0 or
 * -LE_NOMEM. */
int name_json_set(json_t *o, const char *key, const char *name) CHECK_RESULT;
/* Reads a name that name_json_set wrote, into buf. Returns false if there is none, it does not fit,
 * it has a NUL, or it is not in the form of name_json_set. */
bool name_json_get(const json_t *o, const char *key, char *buf, size_t size);

/* Returns any bytes as a string of base64. NULL: no memory. */
json_t *bytes_json(const void *data, size_t len);
/* Decodes base64 into buf. Returns false if value is not base64 or does not fit. */
bool bytes_json_get(const json_t *value, void *buf, size_t size, size_t *ret_len);

#endif
