/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/names.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 32u
#define BASE64  sodium_base64_VARIANT_ORIGINAL

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The least code point that needs n bytes. A lower one in n bytes is overlong. */
static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_len(const char *text)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t c;

	if (p[0] == 0 || (p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4)
		return 0;
	if (n == 1)
		return 1;
	c = p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : n;
}

bool name_is_text(const char *name)
{
	for (size_t n; *name; name += n) {
		n = utf8_len(name);
		if (n == 0)
			return false;
	}
	return true;
}

void text_make_printable(char *text)
{
	while (*text) {
		const uint8_t *c = (const uint8_t *)text;
		size_t n = utf8_len(text);

		if (n == 0 || *c < ' ' || *c == 0x7f) {
			*text++ = '?';
		} else {
			/* C1 controls, which terminals execute, are two bytes long. */
			if (n == 2 && *c == 0xc2 && c[1] < 0xa0)
				memset(text, '?', n);
			text += n;
		}
	}
}

/* Returns the name with U+FFFD for each byte that is no character; malloc'd, NULL: no memory. */
static char *text_of(const char *name)
{
	char *buf = malloc(strlen(name) * (sizeof(replacement) - 1) + 1);
	size_t len = 0;

	if (!buf)
		return NULL;
	while (*name) {
		size_t n = utf8_len(name), put = n ? n : sizeof(replacement) - 1;

		memcpy(buf + len, n ? name : replacement, put);
		len += put;
		name += n ? n : 1;
	}
	buf[len] = 0;
	return buf;
}

json_t *text_json(const char *text)
{
	char *shown = text_of(text);
	json_t *s = shown ? json_string(shown) : NULL;

	free(shown);
	return s;
}

json_t *bytes_json(const void *data, size_t len)
{
	size_t size = sodium_base64_encoded_len(len, BASE64);
	char *text = malloc(size);
	json_t *s = NULL;

	if (text) {
		sodium_bin2base64(text, size, data, len, BASE64);
		s = json_string(text);
	}
	free(text);
	return s;
}

bool bytes_json_get(const json_t *value, void *buf, size_t size, size_t *ret_len)
{
	const char *text = json_string_value(value), *end;

	return text &&
	       sodium_base642bin(buf, size, text, json_string_length(value), NULL, ret_len, &end,
				 BASE64) == 0 &&
	       end == text + json_string_length(value);
}

static const char *bytes_key(const char *key, char buf[KEY_MAX + 5])
{
	snprintf(buf, KEY_MAX + 5, "%s_b64", key);
	return buf;
}

int name_json_set(json_t *o, const char *key, const char *name)
{
	char key2[KEY_MAX + 5], *text;
	int rc;

	if (name_is_text(name))
		return json_object_set_new(o, key, json_string(name)) ? -LE_NOMEM : 0;
	text = text_of(name);
	rc = !text || json_object_set_new(o, key, json_string(text)) ||
	     json_object_set_new(o, bytes_key(key, key2), bytes_json(name, strlen(name)));
	free(text);
	return rc ? -LE_NOMEM : 0;
}

/* Returns whether bytes encode the name that `shown` shows, and are needed because it is no
 * UTF-8. */
static bool same_name(const char *bytes, const char *shown)
{
	char *text = name_is_text(bytes) ? NULL : text_of(bytes);
	bool same = text && strcmp(text, shown) == 0;

	free(text);
	return same;
}

bool name_json_get(const json_t *o, const char *key, char *buf, size_t size)
{
	char key2[KEY_MAX + 5];
	const json_t *text = json_object_get(o, key);
	const json_t *exact = json_object_get(o, bytes_key(key, key2));
	size_t len = json_string_length(text);

	if (!json_is_string(text) || strlen(json_string_value(text)) != len || size == 0)
		return false;
	if (!exact) {
		if (len >= size)
			return false;
		memcpy(buf, json_string_value(text), len + 1);
		return true;
	}
	if (!bytes_json_get(exact, buf, size - 1, &len) || memchr(buf, 0, len))
		return false;
	buf[len] = 0;
	return same_name(buf, json_string_value(text));
}
