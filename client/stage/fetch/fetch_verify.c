/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/fetch_verify.h"

#include <fcntl.h>

#include "client/dataset/vol.h"
#include "client/dataset/vol_local.h"
#include "client/stage/fetch/fetch_impl.h"
#include "client/stage/store/store_path.h"

static void bad_chunk(struct fetch *ft, const struct manifest_file *f, uint64_t chunk, uint64_t off)
{
	store_set_chunk(ft->o.store, f->first_chunk + chunk, false);
	if (ft->n_bad++ == 0)
		detail_set(ft->d, -LE_CORRUPT, f->path, off, "the local copy is damaged");
}

/* Returns whether a chunk of zeros is a hole of the copy, which need not be read. run: the last
 * extent found. Yields. */
static bool is_hole(const struct fetch *ft, const struct manifest_file *f, struct env_file *file,
		    struct vol_run *run, uint64_t off, uint32_t len)
{
	bool zeros;
	if (manifest_run(ft->o.manifest, f, off, off + len, &zeros) < len || !zeros)
		return false;
	if (off < run->from || off >= run->hole) {
		run->from = off;
		if (vol_env_data(ft->o.store->env, file, off, &run->data, &run->hole) < 0)
			*run = (struct vol_run){off, off, off + len};
	}
	return off + len <= run->data;
}

static void verify_file(struct fetch *ft, uint32_t i)
{
	const struct manifest_file *f = &ft->o.manifest->files[i];
	char path[STORE_PATH_SIZE];
	struct env_file *file = NULL;
	struct slot *s = NULL;
	struct vol_run run = {0};
	int rc = store_data_path(ft->o.store, i, f->path, path);
	if (rc == 0)
		rc = env_file_open(ft->o.store->env, path, O_RDONLY, 0, &file);
	if (rc == 0)
		rc = slot_get(ft->pool, NO_DEADLINE, &s);
	if (rc < 0 && rc != -LE_NOENT)
		fetch_fail_local(ft, rc, f->path, "cannot read the copy");
	for (uint64_t c = 0; c < manifest_file_chunks(f) && !fetch_stopped(ft); c++) {
		uint64_t off = c * MANIFEST_CHUNK;
		uint32_t len = manifest_chunk_len(f, c);
		int64_t bad = 0;
		if (rc == 0 && is_hole(ft, f, file, &run, off, len))
			bad = -1;
		else if (rc == 0 && env_file_pread(file, s->data, len, off) == 0)
			bad = manifest_check(ft->o.manifest, f, off, s->data, len);
		else
			bad = (int64_t)(off / f->block);
		if (bad >= 0)
			bad_chunk(ft, f, c, (uint64_t)bad * f->block);
		else
			ft->report.bytes_verified += len;
		fetch_tell(ft);
	}
	if (rc == -LE_NOENT && f->size == 0)
		ft->n_bad++;
	slot_unref(s);
	env_file_close(file);
	ft->report.files++;
}

static void verify_files(void *arg)
{
	struct fetch *ft = *(struct fetch **)arg;
	while (ft->next_file < ft->o.manifest->n_files && !fetch_stopped(ft)) {
		uint32_t i = ft->next_file++;
		if (store_has_file(ft->o.store, i))
			verify_file(ft, i);
	}
}

int fetch_verify(const struct fetch_options *opts, struct fetch_report *ret_report,
		 uint64_t *ret_n_bad, int *ret_code, struct detail *d)
{
	struct fetch *ft;
	*ret_code = LEAT_STAGE_INTERNAL;
	TRY(fetch_create(opts, d, &ft));
	fetch_run_wide(ft, "verify_files", verify_files, FILES_WIDTH);
	int rc = ft->rc;
	*ret_code = rc < 0 ? ft->code : ft->n_bad ? LEAT_STAGE_LOCAL_CORRUPT : LEAT_STAGE_DONE;
	*ret_report = ft->report;
	*ret_n_bad = ft->n_bad;
	fetch_destroy(ft);
	return rc;
}
