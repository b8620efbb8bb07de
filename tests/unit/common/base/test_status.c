/* SPDX-License-Identifier: Apache-2.0 */
/* The table of statuses: one name, one number. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "common/base/uuid.h"

static void names_and_texts(void **state)
{
	(void)state;
	assert_string_equal(status_name(-LE_NOENT), "NOENT");
	assert_string_equal(status_name(LE_CORRUPT), "CORRUPT");
	assert_string_equal(status_name(-99999), "?");
	assert_string_equal(status_text(0), "success");
	assert_string_equal(status_text(-LE_FENCED), "this client was fenced");
	assert_int_equal(status_errno(-LE_BAD_CAP), EACCES);
	assert_int_equal(status_errno(-99999), EIO);
	assert_string_equal(status_name(INT32_MIN), "?"); /* a peer may send it */
	assert_int_equal(status_retry(-LE_STALE_EPOCH), RETRY_MAP);
	assert_int_equal(status_retry(-LE_NOENT), RETRY_NEVER);
}

static void errno_maps_both_ways(void **state)
{
	(void)state;
	assert_int_equal(status_from_errno(ENOENT), -LE_NOENT);
	assert_int_equal(status_from_errno(EOPNOTSUPP), -LE_NOTSUP);
	assert_int_equal(status_from_errno(EPROTO), -LE_IO);
	assert_int_equal(status_from_errno(1000), -LE_IO);
	assert_int_equal(status_from_errno(0), -LE_IO);
	/* The client tries a server again if its machine is down, whatever the network returns. */
	static const int gone[] = {ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN,
				   ENETDOWN};
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		assert_int_equal(status_retry(status_from_errno(gone[i])), RETRY_CONN);
	/* A number below 1000 is the errno of that name. */
#define X(name, number, parent, retry, text)                                                       \
	if (number > 0 && number < 1000 && number != LE_CANCELED)                                  \
		assert_int_equal(parent, number);
	STATUS_TABLE(X)
#undef X
}

static int fails(int status)
{
	TRY(status);
	return 7;
}

static void try_returns(void **state)
{
	(void)state;
	assert_int_equal(fails(-LE_IO), -LE_IO);
	assert_int_equal(fails(3), 7);
}

static void uuid_text(void **state)
{
	struct uuid u, v;
	char text[UUID_TEXT_SIZE];
	(void)state;
	assert_int_equal(uuid_parse("01234567-89ab-cdef-0123-456789ABCDEF", &u), 0);
	uuid_format(&u, text);
	assert_string_equal(text, "01234567-89ab-cdef-0123-456789abcdef");
	assert_int_equal(uuid_parse(text, &v), 0);
	assert_true(uuid_equal(&u, &v) && !uuid_is_zero(&u));
	static const char *const bad[] = {"",
					  "0",
					  "01234567-89ab-cdef-0123-456789abcde",
					  "01234567-89ab-cdef-0123-456789abcdef0",
					  "0123456789ab-cdef-0123-456789abcdef-",
					  "g1234567-89ab-cdef-0123-456789abcdef"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(uuid_parse(bad[i], &v), -LE_INVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_texts),
		cmocka_unit_test(errno_maps_both_ways),
		cmocka_unit_test(try_returns),
		cmocka_unit_test(uuid_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
