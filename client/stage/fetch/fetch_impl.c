/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/fetch_impl.h"

#include "common/rt/fiber.h"

static int code_of(int rc, int otherwise)
{
	switch (rc) {
	case -LE_NOSPC:
	case -LE_DQUOT:
		return LEAT_STAGE_NO_CAPACITY;
	case -LE_PERM:
	case -LE_FOREIGN:
	case -LE_ACCES:
	case -LE_ROFS:
		return LEAT_STAGE_PERMISSION;
	case -LE_CANCELED:
		return LEAT_STAGE_CANCELLED;
	default:
		return otherwise;
	}
}

void fetch_fail(struct fetch *ft, int rc, int code, const char *path, uint64_t off,
		const char *what)
{
	waitq_wake_all(&ft->arrived);
	if (ft->rc)
		return;
	ft->rc = rc;
	ft->code = code;
	detail_set(ft->d, rc, path, off, "%s: %s", what, status_text(rc));
}

void fetch_fail_local(struct fetch *ft, int rc, const char *path, const char *what)
{
	fetch_fail(ft, rc, code_of(rc, LEAT_STAGE_INTERNAL), path, UINT64_MAX, what);
}

void fetch_fail_source(struct fetch *ft, int rc, const struct manifest_file *f, uint64_t off,
		       const char *what)
{
	/* Other failures, such as unreachable servers, may be temporary: a later run can
	 * continue. */
	int code = LEAT_STAGE_PARTIAL;
	if (rc == -LE_CORRUPT)
		code = LEAT_STAGE_SOURCE_CORRUPT;
	else if (rc == -LE_NOENT || rc == -LE_STALE || rc == -LE_NOTDIR || rc == -LE_ISDIR)
		code = LEAT_STAGE_SOURCE_GONE;
	fetch_fail(ft, rc, code_of(rc, code), f->path, off, what);
}

bool fetch_stopped(struct fetch *ft)
{
	if (ft->rc == 0 && ft->o.cancel && *ft->o.cancel)
		fetch_fail(ft, -LE_CANCELED, LEAT_STAGE_CANCELLED, ft->o.store->dir, UINT64_MAX,
			   "staging");
	return ft->rc != 0;
}

void fetch_tell(struct fetch *ft)
{
	if (ft->o.report)
		ft->o.report(ft->o.arg, &ft->report);
}

void fetch_run_wide(struct fetch *ft, const char *name, void (*fn)(void *arg), uint32_t width)
{
	struct fetch *fts[FETCH_WIDTH_PEERS];
	for (uint32_t i = 0; i < width; i++)
		fts[i] = ft;
	fiber_parallel(name, fn, fts, sizeof(fts[0]), width, width);
}
