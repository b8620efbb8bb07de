/* SPDX-License-Identifier: Apache-2.0 */
/* Text form of uuids. */
#include "common/base/uuid.h"

static const char hex[] = "0123456789abcdef";

static bool dash_before(int i)
{
	return i == 4 || i == 6 || i == 8 || i == 10;
}

void uuid_format(const struct uuid *u, char ret_text[UUID_TEXT_SIZE])
{
	char *p = ret_text;
	for (int i = 0; i < 16; i++) {
		if (dash_before(i))
			*p++ = '-';
		*p++ = hex[u->b[i] >> 4];
		*p++ = hex[u->b[i] & 15];
	}
	*p = '\0';
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -LE_INVAL;
}

int uuid_parse(const char *text, struct uuid *ret_uuid)
{
	struct uuid u;
	for (int i = 0; i < 16; i++) {
		if (dash_before(i) && *text++ != '-')
			return -LE_INVAL;
		int hi = digit(text[0]);
		TRY(hi);
		int lo = digit(text[1]);
		TRY(lo);
		u.b[i] = (uint8_t)(hi << 4 | lo);
		text += 2;
	}
	if (*text != '\0')
		return -LE_INVAL;
	*ret_uuid = u;
	return 0;
}
