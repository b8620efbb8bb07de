/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/net_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mounts.h"
#include "tools/tool.h"

#define PAGES_MAX 10000u

static uint64_t number(const json_t *o, const char *name)
{
	json_int_t v = json_integer_value(json_object_get(o, name));

	return v > 0 ? (uint64_t)v : 0;
}

static const char *text(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "";
}

json_t *net_of_mount(const char *path)
{
	json_t *all = NULL;
	uint64_t have = 0, total = 1;

	for (uint32_t page = 0; page < PAGES_MAX && have < total; page++) {
		char name[40] = "leat.net", *answer;
		json_t *one;

		if (have > 0)
			snprintf(name, sizeof(name), "leat.net.%llu", (unsigned long long)have);
		answer = virtual_attribute(path, name);
		if (!answer)
			break;
		one = json_loads(answer, 0, NULL);
		free(answer);
		if (!one || number(one, "listed") == 0) {
			json_decref(one);
			break;
		}
		total = number(one, "total");
		have += number(one, "listed");
		if (!all) {
			all = one;
			continue;
		}
		json_array_extend(json_object_get(all, "connections"),
				  json_object_get(one, "connections"));
		json_object_set_new(all, "listed", json_integer((json_int_t)have));
		json_decref(one);
	}
	return all;
}

void net_print_transport(const json_t *transport)
{
	bool tcp = json_is_true(json_object_get(transport, "tcp"));
	bool verbs = json_is_true(json_object_get(transport, "verbs"));

	printf("transport   %s: ", text(transport, "mode"));
	if (verbs)
		printf("verbs (%s)%s\n", text(transport, "devices"), tcp ? ", tcp" : "");
	else
		printf("tcp; not verbs: %s\n", text(transport, "why_not_verbs"));
}

/* A server does not have all numbers of its clients. */
static const char *known(const json_t *c, const char *name, char text[24])
{
	if (!json_object_get(c, name))
		return "-";
	snprintf(text, 24, "%llu", (unsigned long long)number(c, name));
	return text;
}

static void print_row(const json_t *c)
{
	char in[SIZE_TEXT], out[SIZE_TEXT], copied[SIZE_TEXT], device[48] = "-";
	char rail[24], repeated[24];
	const char *state = text(c, "state"), *why = text(c, "why");

	if (*text(c, "device"))
		snprintf(device, sizeof(device), "%s/%llu", text(c, "device"),
			 (unsigned long long)number(c, "port"));
	printf("%-16s %-6s %-10s %4s %10s %10s %7llu %7llu %6s %10s %7.0f  %s", text(c, "to"),
	       *text(c, "transport") ? text(c, "transport") : "-", device,
	       known(c, "rail", rail), format_size(number(c, "in_per_s"), in),
	       format_size(number(c, "out_per_s"), out), (unsigned long long)number(c, "in_flight"),
	       (unsigned long long)(number(c, "credit_stalls") + number(c, "queue_stalls")),
	       known(c, "repeated", repeated),
	       format_size(number(c, "copied_bytes"), copied),
	       json_number_value(json_object_get(c, "age_s")), text(c, "addr"));
	if (strcmp(state, "up") != 0)
		printf("  %s", state);
	if (*why)
		printf(": %s", why);
	putchar('\n');
}

void net_print(const char *whose, const json_t *net)
{
	const json_t *list = json_object_get(net, "connections"), *c;
	size_t i;

	printf("\n%s: ", whose);
	if (!net || !json_is_array(list)) {
		puts("does not report its connections");
		return;
	}
	printf("%llu connections\n", (unsigned long long)number(net, "total"));
	if (json_array_size(list) == 0)
		return;
	puts("TO               BY     DEVICE     RAIL       IN/S      OUT/S  FLIGHT  STALLS REPEAT"
	     "     COPIED   SINCE  ADDRESS");
	json_array_foreach (list, i, c)
		print_row(c);
	if (number(net, "listed") < number(net, "total"))
		printf("and %llu more\n",
		       (unsigned long long)(number(net, "total") - number(net, "listed")));
}
