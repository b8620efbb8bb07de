/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/left.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/names.h"

static const struct {
	const char *why, *text;
} texts[] = {
	{"dangling", "symbolic links to nothing, or to something left out"},
	{"directory", "symbolic links to a directory outside of the tree"},
	{"outside", "symbolic links to another file system, or not to a regular file"},
	{"loop", "symbolic links that lead back to themselves"},
	{"denied", "symbolic links without permission to read the target"},
	{"device", "devices"},
	{"socket", "sockets"},
	{"pipe", "named pipes"},
	{"member", "members of archives that are neither files nor hard links"},
};

int left_parse_skip(const struct tool *t, const char *text, unsigned *ret_skip)
{
	char words[64], *rest = words, *word;

	if (snprintf(words, sizeof(words), "%s", text) >= (int)sizeof(words))
		return tool_usage(t, "--skip: links, special or links,special, not '%s'", text);
	while ((word = strsep(&rest, ",")) != NULL) {
		if (strcmp(word, "links") == 0)
			*ret_skip |= LEAT_SKIP_LINKS;
		else if (strcmp(word, "special") == 0)
			*ret_skip |= LEAT_SKIP_SPECIAL;
		else
			return tool_usage(t, "--skip: links, special or links,special, not '%s'",
					  text);
	}
	return EXIT_OK;
}

int left_status(const struct leat_stage_result *r, unsigned skip)
{
	for (uint32_t i = 0; i < r->n_left; i++)
		if (!(r->left[i].skip & skip))
			return EXIT_PARTIAL;
	return EXIT_OK;
}

static const char *text_of(const char *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (strcmp(texts[i].why, why) == 0)
			return texts[i].text;
	return why;
}

void left_print(const struct leat_stage_result *r, unsigned skip)
{
	for (uint32_t i = 0; i < r->n_left; i++) {
		const struct leat_stage_left *l = &r->left[i];

		printf("not copied: %" PRIu64 " ", l->n);
		tool_write_name(text_of(l->why)); /* may come from another machine */
		fputs(" (", stdout);
		for (uint32_t k = 0; k < l->n_names; k++) {
			fputs(k ? ", " : "", stdout);
			tool_write_name(l->names[k]);
		}
		puts(l->n > l->n_names ? ", ...)" : ")");
	}
	if (left_status(r, skip) != EXIT_OK)
		puts("The copy is complete without these: repair them and run this again, or "
		     "give --skip links,special.");
	if (r->hard_links)
		printf("%" PRIu64 " files with several names are separate files in the copy\n",
		       r->hard_links);
	if (r->narrowed)
		printf("%" PRIu64 " files and folders may be read by fewer users than at the "
		       "source: only root can give files to their owners, and only where the file "
		       "system has access lists\n",
		       r->narrowed);
}

void left_to_json(json_t *o, const struct leat_stage_result *r)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < r->n_left; i++) {
		const struct leat_stage_left *l = &r->left[i];
		json_t *names = json_array();

		for (uint32_t k = 0; k < l->n_names; k++) {
			json_t *name = json_object();

			if (name_json_set(name, "name", l->names[k]) == 0)
				json_array_append_new(names, name);
			else
				json_decref(name);
		}
		json_array_append_new(all, json_pack("{s:s,s:I,s:o}", "why", l->why, "count",
						     (json_int_t)l->n, "names", names));
	}
	json_object_set_new(o, "skipped", json_integer(r->skipped));
	json_object_set_new(o, "not_copied", all);
	json_object_set_new(o, "hard_links", json_integer((json_int_t)r->hard_links));
	json_object_set_new(o, "narrowed", json_integer((json_int_t)r->narrowed));
}

static bool row_from_json(const json_t *o, struct leat_stage_left *l)
{
	const char *why;
	json_int_t count;
	int skip;
	json_t *names, *name;
	size_t i;

	if (json_unpack((json_t *)o, "{s:s,s:i,s:I,s:o}", "why", &why, "skip", &skip, "count",
			&count, "names", &names) < 0 ||
	    strlen(why) >= sizeof(l->why) || count <= 0)
		return false;
	memset(l, 0, sizeof(*l));
	memcpy(l->why, why, strlen(why) + 1);
	l->skip = (unsigned)skip;
	l->n = (uint64_t)count;
	json_array_foreach(names, i, name)
	{
		if (l->n_names < ARRAY_SIZE(l->names) &&
		    name_json_get(name, "name", l->names[l->n_names], sizeof(l->names[0])))
			l->n_names++;
	}
	return true;
}

void left_from_json(const json_t *o, struct leat_stage_result *r)
{
	struct leat_stage_left left[ARRAY_SIZE(r->left)];
	const json_t *rows = json_object_get(o, "not_copied"), *row;
	uint64_t n = 0, hard = (uint64_t)json_integer_value(json_object_get(o, "hard_links"));
	uint64_t narrowed = (uint64_t)json_integer_value(json_object_get(o, "narrowed"));
	uint32_t n_left = 0;
	size_t i;

	json_array_foreach((json_t *)rows, i, row)
	{
		if (n_left < ARRAY_SIZE(left) && row_from_json(row, &left[n_left]))
			n += left[n_left++].n;
	}
	r->narrowed = narrowed > r->narrowed ? narrowed : r->narrowed;
	r->hard_links = hard > r->hard_links ? hard : r->hard_links;
	if (n <= r->skipped)
		return;
	memcpy(r->left, left, n_left * sizeof(left[0]));
	r->n_left = n_left;
	r->skipped = (uint32_t)n;
}
