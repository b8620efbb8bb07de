/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/restart/handle_table.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/restart/restart_state.h"

#define PLACE_MASK 0xffffffffu

static struct mount_file *find(const struct leatfs *fs, uint64_t fh)
{
	uint32_t at = (uint32_t)(fh & PLACE_MASK);

	if (at >= fs->restart->files_top || fs->handles.files[at] == NULL ||
	    fs->restart->files[at].use != fh >> 32)
		return NULL;
	return fs->handles.files[at];
}

struct mount_file *file_find(const struct leatfs *fs, const struct fuse_file_info *fi)
{
	return find(fs, fi->fh);
}

struct mount_file *file_of(fuse_req_t req, const struct fuse_file_info *fi)
{
	struct mount_file *mf = find(req_fs(req), fi->fh);

	ASSERT(mf != NULL && mf->magic == MOUNT_FILE_MAGIC);
	return mf;
}

int open_files_init(struct leatfs *fs)
{
	struct handle_table *t = &fs->handles;

	t->files = calloc(RESTART_FILES_MAX, sizeof(*t->files));
	t->free_places = malloc(RESTART_FILES_MAX * sizeof(*t->free_places));
	t->unreplied = malloc(RESTART_FILES_MAX * sizeof(*t->unreplied));
	return t->files && t->free_places && t->unreplied ? 0 : -LE_NOMEM;
}

int open_files_add(fuse_req_t req, struct mount_file *mf, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct restart *k = fs->restart;
	struct restart_file *f;
	uint32_t at;

	if (fs->handles.n_free > 0)
		at = fs->handles.free_places[--fs->handles.n_free];
	else if (k->files_top < RESTART_FILES_MAX)
		at = k->files_top;
	else
		return -LE_NFILE;
	ASSERT(fs->handles.files[at] == NULL && !k->files[at].used);
	f = &k->files[at];
	*f = (struct restart_file){
		.ino = ll_file_ino(mf->file).v,
		.unique = ll_request_unique(),
		.flags = mf->flags,
		.uid = fuse_req_ctx(req)->uid,
		.gid = fuse_req_ctx(req)->gid,
		.use = f->use + 1,
	};
	passthrough_note(mf->pass, &f->pass);
	RESTART_BARRIER();
	f->used = 1;
	RESTART_BARRIER();
	if (at == k->files_top)
		k->files_top++;
	mf->place = at;
	fs->handles.files[at] = mf;
	fi->fh = (uint64_t)f->use << 32 | at;
	return 0;
}

void open_files_answered(struct leatfs *fs, const struct fuse_file_info *fi)
{
	fs->restart->files[fi->fh & PLACE_MASK].unique = 0;
}

void open_files_end(struct leatfs *fs, struct mount_file *mf)
{
	/* While the entry is used, a next daemon would take the file over and release its locks. */
	ll_unlock_all(mf->file);
	ASSERT(fs->handles.files[mf->place] == mf && fs->handles.n_free < RESTART_FILES_MAX);
	fs->handles.files[mf->place] = NULL;
	fs->restart->files[mf->place].used = 0;
	RESTART_BARRIER();
	fs->handles.free_places[fs->handles.n_free++] = mf->place;
	kernel_pages_closed(mf);
	ll_release(mf->file);
	mf->magic = 0;
	free(mf);
}

void open_files_lock(struct leatfs *fs, const struct mount_file *mf, uint64_t owner)
{
	struct restart_file *f = &fs->restart->files[mf->place];

	for (uint32_t i = 0; i < RESTART_OWNERS; i++)
		if (f->owners[i] == owner)
			return;
	f->owners[f->next_owner] = owner;
	f->next_owner = (uint8_t)((f->next_owner + 1) % RESTART_OWNERS);
}

/* ---- after a previous daemon ---- */

static int resume_one(struct leatfs *fs, struct client *c, uint32_t at)
{
	const struct restart_file *f = &fs->restart->files[at];
	const struct cred cred = {.uid = f->uid, .gid = f->gid, .flags = CRED_CHECKED};
	struct mount_file *mf = malloc(sizeof(*mf));
	int status;

	if (mf == NULL)
		return -LE_NOMEM;
	*mf = (struct mount_file){.magic = MOUNT_FILE_MAGIC, .flags = f->flags, .place = at};
	status = kernel_pages_resume(fs, mf, f);
	if (status == 0)
		status = ll_resume_file(c, (struct ino){f->ino}, &cred, f->flags, &mf->file);
	if (status < 0) {
		kernel_pages_closed(mf);
		free(mf);
		return status;
	}
	fs->handles.files[at] = mf;
	if (f->unique != 0)
		fs->handles.unreplied[fs->handles.n_unreplied++] = at;
	return 0;
}

int open_files_resume(void *arg, struct client *c)
{
	struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);
	uint32_t n = 0;

	/* The previous daemon may have been killed between setting used and files_top. */
	while (fs->restart->files_top < RESTART_FILES_MAX &&
	       fs->restart->files[fs->restart->files_top].used)
		fs->restart->files_top++;
	for (uint32_t at = fs->restart->files_top; at-- > 0;) {
		if (!fs->restart->files[at].used) {
			fs->handles.free_places[fs->handles.n_free++] = at;
			continue;
		}
		TRY(resume_one(fs, c, at));
		n++;
	}
	if (n > 0)
		log_info("taking over %u open files of the previous daemon", n);
	return 0;
}

void open_files_resumed(struct leatfs *fs)
{
	for (uint32_t at = 0; at < fs->restart->files_top; at++) {
		const struct restart_file *f = &fs->restart->files[at];

		if (fs->handles.files[at] == NULL)
			continue;
		for (uint32_t i = 0; i < RESTART_OWNERS; i++)
			if (f->owners[i] != 0)
				ll_resume_owner(fs->handles.files[at]->file, f->owners[i]);
	}
}

void open_files_resent(struct leatfs *fs, uint64_t unique)
{
	for (uint32_t i = 0; i < fs->handles.n_unreplied; i++) {
		uint32_t at = fs->handles.unreplied[i];
		struct restart_file *f = &fs->restart->files[at];
		struct mount_file *mf = fs->handles.files[at];

		if (!f->used || f->unique != unique || mf == NULL)
			continue;
		fs->handles.unreplied[i] = fs->handles.unreplied[--fs->handles.n_unreplied];
		open_files_end(fs, mf);
		return;
	}
}

/* Only of files that are open: no program reads pages of others. */
void open_files_drop_pages(void *arg)
{
	struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);

	kernel_pages_drop_previous(fs);
	if (mount_is_attached(fs))
		ll_previous_pages_gone(fs->client);
}
