/*
 * Names of files are bytes: all but NUL and the slash. JSON wants text. This says how a name is
 * told there, so that no name stops anything and none is changed on the way.
 *
 * In JSON a name that is UTF-8 is a string. Of one that is not, KEY has U+FFFD for each byte that
 * is no character, for people; KEY_b64 has the exact bytes in base64 (RFC 4648, padded).
 *
 * Any thread. Names here are NUL-terminated.
 */
#ifndef LEAT_BASE_NAMES_H
#define LEAT_BASE_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Bytes of the UTF-8 character at p; 0: there is none, or NUL. */
size_t utf8_len(const char *p);
bool name_is_text(const char *name);
/* With U+FFFD for each byte that is no character; malloc'd, NULL: no memory. */
char *name_text(const char *name);

/* What is said of names, for people alone: name_text as a string. NULL: no memory. */
json_t *text_json(const char *text);
/* o[key], and o[key + "_b64"] where the name is no text. key of at most 32 bytes. -LE_NOMEM. */
int name_json_set(json_t *o, const char *key, const char *name) CHECK_RESULT;
/* The other way, into buf. False: there is no such name, it does not fit, it has a NUL, or what is
 * there is not what name_json_set writes. */
bool name_json_get(const json_t *o, const char *key, char *buf, size_t size);

/* Any bytes as a string of base64, NULL: no memory. */
json_t *bytes_json(const void *data, size_t len);
/* The other way: false if it is none or does not fit. */
bool bytes_json_get(const json_t *value, void *buf, size_t size, size_t *ret_len);

#endif
