/* SPDX-License-Identifier: Apache-2.0 */
/* What a scan has left out, as the result of a call reports it. */
#include "client/stage/job/left_out.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/dataset/scan_list.h"
#include "client/stage/job/job.h"
#include "common/base/assert.h"
#include "common/base/names.h"

static const struct {
	const char *why;
	unsigned skip;
} kinds[LEFT_KINDS] = {
	[LEFT_DANGLING] = {"dangling", LEAT_SKIP_LINKS},
	[LEFT_DIRECTORY] = {"directory", LEAT_SKIP_LINKS},
	[LEFT_OUTSIDE] = {"outside", LEAT_SKIP_LINKS},
	[LEFT_LOOP] = {"loop", LEAT_SKIP_LINKS},
	[LEFT_DENIED] = {"denied", LEAT_SKIP_LINKS},
	[LEFT_DEVICE] = {"device", LEAT_SKIP_SPECIAL},
	[LEFT_SOCKET] = {"socket", LEAT_SKIP_SPECIAL},
	[LEFT_PIPE] = {"pipe", LEAT_SKIP_SPECIAL},
	[LEFT_MEMBER] = {"member", LEAT_SKIP_SPECIAL},
};

static struct leat_stage_left *row_of(struct leat_stage_result *r, enum left_why why)
{
	for (uint32_t i = 0; i < r->n_left; i++)
		if (strcmp(r->left[i].why, kinds[why].why) == 0)
			return &r->left[i];
	ASSERT(r->n_left < ARRAY_SIZE(r->left));
	struct leat_stage_left *l = &r->left[r->n_left++];
	memset(l, 0, sizeof(*l));
	snprintf(l->why, sizeof(l->why), "%s", kinds[why].why);
	l->skip = kinds[why].skip;
	return l;
}

void stage_add_left(struct leat_stage_result *r, const struct scan *s)
{
	r->hard_links += s->n_hard_links;
	for (uint32_t k = 0; k < LEFT_KINDS; k++) {
		const struct left_out *from = &s->left[k];
		if (from->n == 0)
			continue;
		struct leat_stage_left *l = row_of(r, (enum left_why)k);
		l->n += from->n;
		r->skipped += (uint32_t)from->n;
		for (uint32_t i = 0; i < LEFT_NAMES && from->names[i]; i++)
			if (l->n_names < ARRAY_SIZE(l->names))
				snprintf(l->names[l->n_names++], sizeof(l->names[0]), "%.511s",
					 from->names[i]);
	}
}

void stage_left_to_json(json_t *o, const struct leat_stage_result *r)
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
		json_array_append_new(all, json_pack("{s:s,s:i,s:I,s:o}", "why", l->why, "skip",
						     (int)l->skip, "count", (json_int_t)l->n,
						     "names", names));
	}
	/* Without memory the text is incomplete. */
	json_object_set_new(o, "not_copied", all);
	json_object_set_new(o, "hard_links", json_integer((json_int_t)r->hard_links));
	json_object_set_new(o, "narrowed", json_integer((json_int_t)r->narrowed));
}

void stage_report_left(struct stage_job *job, const struct scan *s)
{
	stage_add_left(job->r, s);
}
