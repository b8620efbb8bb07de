/*
 * The numbers by which the kernel knows open files (fuse_file_info.fh). They are places in a table
 * that outlives the daemon (kept.h), so that the next one knows what each of them was. Of open
 * directories nothing has to be known: whoever does not know a number begins anew.
 *
 * Owner: the mount's loop. One process serves one mount.
 */
#include "fuse/mount.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "fuse/kept.h"
#include "fuse/passthrough.h"

#define PLACE_MASK 0xffffffffu

static struct mount_file **files; /* by place */
static uint32_t *free_places, n_free;
/* Opened for requests of which it is not known whether the kernel has the answer. */
static uint32_t *doubtful, n_doubtful;

static struct mount_file *find(const struct leatfs *fs, uint64_t fh)
{
	uint32_t at = (uint32_t)(fh & PLACE_MASK);

	if (at >= fs->kept->files_top || files[at] == NULL || fs->kept->files[at].use != fh >> 32)
		return NULL;
	return files[at];
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
	(void)fs;
	files = calloc(KEPT_FILES_MAX, sizeof(*files));
	free_places = malloc(KEPT_FILES_MAX * sizeof(*free_places));
	doubtful = malloc(KEPT_FILES_MAX * sizeof(*doubtful));
	return files && free_places && doubtful ? 0 : -LE_NOMEM;
}

int open_files_add(fuse_req_t req, struct mount_file *mf, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct kept *k = fs->kept;
	struct kept_file *f;
	uint32_t at;

	if (n_free > 0)
		at = free_places[--n_free];
	else if (k->files_top < KEPT_FILES_MAX)
		at = k->files_top;
	else
		return -LE_NFILE;
	f = &k->files[at];
	*f = (struct kept_file){
		.ino = ll_file_ino(mf->file).v,
		.unique = ll_request_unique(),
		.flags = mf->flags,
		.uid = fuse_req_ctx(req)->uid,
		.gid = fuse_req_ctx(req)->gid,
		.use = f->use + 1,
	};
	passthrough_note(mf->pass, &f->pass);
	KEPT_BARRIER();
	f->used = 1;
	KEPT_BARRIER();
	if (at == k->files_top)
		k->files_top++;
	mf->place = at;
	files[at] = mf;
	fi->fh = (uint64_t)f->use << 32 | at;
	return 0;
}

void open_files_answered(struct leatfs *fs, const struct fuse_file_info *fi)
{
	fs->kept->files[fi->fh & PLACE_MASK].unique = 0;
}

void open_files_end(struct leatfs *fs, struct mount_file *mf)
{
	/* As long as a next daemon would take it over, and give back what is left. */
	ll_unlock_all(mf->file);
	files[mf->place] = NULL;
	fs->kept->files[mf->place].used = 0;
	KEPT_BARRIER();
	free_places[n_free++] = mf->place;
	passthrough_end(mf->pass);
	known_size_put(mf->known);
	ll_release(mf->file);
	mf->magic = 0;
	free(mf);
}

void open_files_lock(struct leatfs *fs, const struct mount_file *mf, uint64_t owner)
{
	struct kept_file *f = &fs->kept->files[mf->place];

	for (uint32_t i = 0; i < KEPT_OWNERS; i++)
		if (f->owners[i] == owner)
			return;
	f->owners[f->next_owner] = owner;
	f->next_owner = (uint8_t)((f->next_owner + 1) % KEPT_OWNERS);
}

/* ---- after a former daemon ---- */

static int resume_one(struct leatfs *fs, struct client *c, uint32_t at)
{
	const struct kept_file *f = &fs->kept->files[at];
	const struct cred cred = {.uid = f->uid, .gid = f->gid, .flags = CRED_CHECKED};
	struct mount_file *mf = malloc(sizeof(*mf));
	int status;

	if (mf == NULL)
		return -LE_NOMEM;
	*mf = (struct mount_file){.magic = MOUNT_FILE_MAGIC, .flags = f->flags, .place = at};
	status = known_size_former(fs, (struct ino){f->ino});
	if (status == 0)
		status = ll_resume_file(c, (struct ino){f->ino}, &cred, f->flags, &mf->file);
	if (status < 0) {
		free(mf);
		return status;
	}
	files[at] = mf;
	if (f->unique != 0)
		doubtful[n_doubtful++] = at;
	return 0;
}

int open_files_resume(void *arg, struct client *c)
{
	struct leatfs *fs = arg;
	uint32_t n = 0;

	/* It may have been killed between the two. */
	while (fs->kept->files_top < KEPT_FILES_MAX && fs->kept->files[fs->kept->files_top].used)
		fs->kept->files_top++;
	for (uint32_t at = fs->kept->files_top; at-- > 0;) {
		if (!fs->kept->files[at].used) {
			free_places[n_free++] = at;
			continue;
		}
		TRY(resume_one(fs, c, at));
		n++;
	}
	if (n > 0)
		log_info("going on with %u open files", n);
	return 0;
}

int open_files_resumed(struct leatfs *fs)
{
	for (uint32_t at = 0; at < fs->kept->files_top; at++) {
		const struct kept_file *f = &fs->kept->files[at];

		if (files[at] == NULL)
			continue;
		TRY(passthrough_resume(fs, f->ino, f->flags, &f->pass, &files[at]->pass));
		for (uint32_t i = 0; i < KEPT_OWNERS; i++)
			if (f->owners[i] != 0)
				ll_resume_owner(files[at]->file, f->owners[i]);
	}
	return 0;
}

void open_files_resent(struct leatfs *fs, uint64_t unique)
{
	for (uint32_t i = 0; i < n_doubtful; i++) {
		uint32_t at = doubtful[i];
		struct kept_file *f = &fs->kept->files[at];
		struct mount_file *mf = files[at];

		if (!f->used || f->unique != unique || mf == NULL)
			continue;
		doubtful[i] = doubtful[--n_doubtful];
		open_files_end(fs, mf);
		return;
	}
}

/* Of files with leases that may have ended meanwhile, or without; what is not open nobody sees.
 * Waits for page locks, which requests hold: from a fiber of its own. */
void open_files_drop_pages(void *arg)
{
	struct leatfs *fs = arg;

	known_size_drop_former(fs);
	/* One after the other: when this is done they are. */
	invalidate_inode_now(fs, mount_root, -1, 0);
	if (fs->mounted)
		ll_former_pages_gone(fs->client);
}
