/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/clocks_view.h"

#include <stdio.h>

#include "common/base/clocks.h"
#include "common/base/names.h"

#define LINES_MAX 8u

static const json_t *targets_of(const json_t *mds_status)
{
	return json_object_get(mds_status, "targets");
}

static bool is_apart(const json_t *target)
{
	return json_is_true(json_object_get(target, "clock_apart"));
}

bool clocks_apart(const json_t *mds_status)
{
	const json_t *t;
	size_t i;

	json_array_foreach(targets_of(mds_status), i, t)
		if (is_apart(t))
			return true;
	return false;
}

void clocks_add(const json_t *mds_status, uint32_t id, json_t *target)
{
	static const char *const names[] = {"clock_ahead_ms", "clock_bound_ms", "clock_apart"};
	json_t *t;
	size_t i;

	json_array_foreach(targets_of(mds_status), i, t)
	{
		if (json_integer_value(json_object_get(t, "id")) != (json_int_t)id)
			continue;
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			if (json_object_get(t, names[k]))
				json_object_set(target, names[k], json_object_get(t, names[k]));
	}
}

static const json_t *clients_of(const json_t *mds_status)
{
	return json_object_get(mds_status, "client_clocks");
}

static size_t clients(const json_t *mds_status, const char *what)
{
	json_int_t n = json_integer_value(json_object_get(clients_of(mds_status), what));

	return n > 0 ? (size_t)n : 0;
}

/* True if all clocks that are compared, at least two, differ from the metadata server's in the same
 * direction. */
static bool mds_is_alone(const json_t *mds_status)
{
	size_t i, n = clients(mds_status, "compared"), ahead = clients(mds_status, "ahead");
	size_t behind = clients(mds_status, "behind");
	const json_t *t;

	json_array_foreach(targets_of(mds_status), i, t)
	{
		const json_t *ms = json_object_get(t, "clock_ahead_ms");

		n += ms != NULL;
		ahead += is_apart(t) && json_integer_value(ms) > 0;
		behind += is_apart(t) && json_integer_value(ms) < 0;
	}
	return n > 1 && (ahead == n || behind == n);
}

/* Gets the name that the client has chosen, without control characters that a terminal would
 * execute. */
static void client_name(const json_t *one, char *to, size_t size)
{
	const char *name = json_string_value(json_object_get(one, "name"));

	snprintf(to, size, "client %s", name != NULL && name[0] != '\0' ? name : "without a name");
	text_make_printable(to);
}

struct clocks_out {
	const char *word; /* the first word of the next line */
	size_t n;         /* clocks that differ */
};

static void print_one(struct clocks_out *o, const char *who, const json_t *one)
{
	json_int_t ms = json_integer_value(json_object_get(one, "clock_ahead_ms"));
	char ahead[CLOCK_AHEAD_TEXT];

	if (ms > INT64_MAX / 1000 || ms < INT64_MIN / 1000)
		return;
	printf("%-12s%s: %s the metadata server's clock\n", o->word, who,
	       clock_format_ahead(ms * 1000, ahead));
	o->word = "";
}

static void print_targets(struct clocks_out *o, const json_t *mds_status)
{
	size_t i, n = 0;
	const json_t *t;

	json_array_foreach(targets_of(mds_status), i, t)
	{
		char who[64];

		if (!is_apart(t) || n++ >= LINES_MAX)
			continue;
		snprintf(who, sizeof(who), "target %" JSON_INTEGER_FORMAT,
			 json_integer_value(json_object_get(t, "id")));
		print_one(o, who, t);
	}
	if (n > LINES_MAX)
		printf("%-12sand %zu others\n", o->word, n - LINES_MAX);
	o->n += n;
}

static void print_clients(struct clocks_out *o, const json_t *mds_status)
{
	const json_t *apart = json_object_get(clients_of(mds_status), "apart"), *one;
	size_t i, n = clients(mds_status, "ahead") + clients(mds_status, "behind");
	size_t listed = json_array_size(apart);

	json_array_foreach(apart, i, one)
	{
		char who[128];

		client_name(one, who, sizeof(who));
		print_one(o, who, one);
	}
	if (n > listed)
		printf("%-12sand %zu other clients\n", o->word, n - listed);
	o->n += n;
}

void clocks_print(const json_t *mds_status)
{
	struct clocks_out o = {.word = "clocks"};

	print_targets(&o, mds_status);
	print_clients(&o, mds_status);
	if (o.n == 0)
		return;
	printf("%-12s%s\n", "",
	       mds_is_alone(mds_status)
		       ? "The metadata server's own clock is probably the wrong one: set it (NTP)."
		       : "Set the clocks named above, and keep the clocks of all machines right "
			 "(NTP).");
}
