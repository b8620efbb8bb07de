/*
 * The rights of a copy, as its source has them when it is staged: those of its files and folders,
 * and of the folders above, through which whoever reads the source has to go.
 */
#include <stdlib.h>

#include "client/stage/stage.h"

static int take(struct manifest *m, struct rights *to, const struct rights *from)
{
	struct rights r = *from;
	TRY(acl_pool_set(&m->acls, &r, from->acl, from->acl_len));
	*to = r;
	return 0;
}

int stage_rights_of_scan(struct manifest *m, const struct scan *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		int64_t k = manifest_find(m, s->files[i].path);
		if (k >= 0)
			TRY(take(m, &m->files[k].rights, &s->files[i].rights));
	}
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		int64_t k = manifest_find_dir(m, s->dirs[i].path);
		if (k >= 0)
			TRY(take(m, &m->dirs[k].rights, &s->dirs[i].rights));
	}
	return 0;
}

/* Those that the manifest tells of, as they are at the source now. What is not there any more keeps
 * what the manifest says. */
static int look_again(struct stage_job *job, const char *source)
{
	struct detail *ignored = calloc(1, sizeof(*ignored));
	struct scan s;
	if (!ignored)
		return -LE_NOMEM;
	int rc = scan_tree(io_source(&job->io), source, &s, ignored);
	free(ignored);
	if (rc < 0)
		return rc == -LE_NOMEM ? rc : 0;
	rc = stage_rights_of_scan(job->m, &s);
	scan_fini(&s);
	return rc;
}

int stage_take_rights(struct stage_job *job)
{
	const struct manifest *of = job->made_of ? job->made_of : job->m;
	const char *source = job->o.source[0] == '/' && !job->made_of ? job->o.source : of->source;
	struct vol *v = io_source(&job->io);
	struct rights *above = NULL;
	uint32_t n = 0;
	char *real = malloc(4096);
	int rc = real ? 0 : -LE_NOMEM;
	if (rc == 0 && !job->rights_known && !job->made_of)
		rc = look_again(job, source);
	/* Where nobody can tell who gets there, only the maker does. */
	if (rc == 0 && (vol_real_path(v, source, real) < 0 ||
			vol_ancestors(v, real, &job->m->acls, &above, &n) < 0))
		above = NULL;
	if (rc == 0)
		rc = grants_make(job->m, above, n, &job->grants);
	job->grants.stop = &job->stop;
	free(above);
	free(real);
	return rc;
}
