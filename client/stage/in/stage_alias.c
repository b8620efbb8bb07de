/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/stage_alias.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/store/copies.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_sources.h"

#define ALIAS_SIZE (2 * MANIFEST_NAME_MAX + 4)

/* The key, besides the id and the manifest, by which the copy is found. False: there is none. */
static bool alias_of(const struct stage_job *job, char ret_alias[ALIAS_SIZE])
{
	if (job->o.source[0] == '/')
		copies_dir_key(job->o.source, ret_alias);
	else if (strchr(job->o.source, '/'))
		return false;
	else
		snprintf(ret_alias, ALIAS_SIZE, "%s%s", job->o.source,
			 strchr(job->o.source, '@') ? "" : "@latest");
	return true;
}

bool stage_alias_is_new(const struct stage_job *job)
{
	char alias[ALIAS_SIZE], before[MANIFEST_ID_SIZE];
	return alias_of(job, alias) &&
	       (store_recall_source(job->io.env, job->o.to, alias, before) < 0 ||
		strcmp(before, job->m->id) != 0);
}

/* Notes the job's source for its copy. So a copy that was made under another name or of another
 * directory is found under this one too, and of several copies of a directory the present one is
 * found. The note also says that the previous copies were marked, so it is written last. */
static void note_alias(const struct stage_job *job)
{
	char alias[ALIAS_SIZE];
	if (!alias_of(job, alias))
		return;
	int rc = store_note_source(job->io.env, job->o.to, alias, job->m->id);
	(void)rc; /* the copy can still be found by its id */
}

/* Returns whether the copy was made of the same source, or under the same name. */
static bool was_same(void *arg, const struct leat_stage_copy *c)
{
	struct stage_job *job = stage_job_of(arg);
	const char *source = job->o.source[0] == '/' ? job->o.source : job->m->source;
	return job->o.source[0] == '/' || !job->m->name[0]
		       ? !c->name[0] && strcmp(c->source, source) == 0
		       : c->name[0] && strcmp(c->name, job->m->name) == 0 &&
				 strcmp(c->version, job->m->version) == 0;
}

/* Marks a copy STALE: its name has a newer content. */
static int mark_stale(void *arg, const struct leat_stage_copy *c)
{
	struct stage_job *job = stage_job_of(arg);
	if (c->state != LEAT_COPY_READY)
		return 0;
	struct local_store *s = malloc(sizeof(*s));
	int rc = s ? store_init(s, job->io.env, job->o.to, c->id) : -LE_NOMEM;
	if (rc == 0)
		rc = store_set_mark(s, "stale", true);
	if (rc == 0)
		store_event(s, "STALE", "");
	free(s);
	return rc;
}

/* If the others cannot be marked, this copy is usable all the same. As the source is not noted
 * then, the next job that stages it tries again. */
void stage_supersede(struct stage_job *job)
{
	int rc = copies_list_those(&job->io, job->o.to, job->m->id, was_same, mark_stale, job);
	if (rc == 0)
		note_alias(job);
}
