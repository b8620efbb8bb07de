/* SPDX-License-Identifier: Apache-2.0 */
/* Names in JSON: any bytes, lossless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/names.h"

static void any_bytes_come_back_from_json(void **state)
{
	unsigned seed = 20261127;

	(void)state;
	printf("seed %u\n", seed);
	for (int round = 0; round < 20000; round++) {
		char name[256], back[256];
		size_t len = (size_t)rand_r(&seed) % 255 + 1;

		for (size_t i = 0; i < len; i++) {
			unsigned r = (unsigned)rand_r(&seed);
			/* half of the names are mostly text */
			name[i] = (char)(round % 2 && r % 32 ? 32 + r % 90 : 1 + r % 255);
		}
		name[len] = 0;
		json_t *o = json_object();
		assert_int_equal(name_json_set(o, "path", name), 0);
		char *text = json_dumps(o, JSON_COMPACT);
		json_t *again = json_loads(text, 0, NULL);
		assert_non_null(again);
		assert_true(name_json_get(again, "path", back, sizeof(back)));
		assert_string_equal(back, name);
		assert_false(name_json_get(again, "path", back, len));
		assert_int_equal(json_object_get(o, "path_b64") == NULL, name_is_text(name));
		/* jansson decides what is text */
		json_t *s = json_string(name);
		assert_int_equal(s != NULL, name_is_text(name));
		json_decref(s);
		json_decref(again);
		json_decref(o);
		free(text);
	}
}

static void printable(void **state)
{
	char text[] = "a\x1b[31m \xe4 caf\xc3\xa9\n\xc2\x9b\x7f";

	(void)state;
	text_make_printable(text);
	assert_string_equal(text, "a?[31m ? caf\xc3\xa9????");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_bytes_come_back_from_json),
		cmocka_unit_test(printable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
