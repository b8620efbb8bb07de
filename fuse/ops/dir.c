/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on names: lookup, creation, removal, rename, links, directory listing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/kernel/ino32.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/credentials.h"
#include "fuse/ops/handlers.h"
#include "fuse/ops/reply.h"
#include "fuse/restart/restart_state.h"

/* ---- one name ---- */

/* Replies that there is no such name; the kernel may cache that as long as there are leases. */
static void reply_none(fuse_req_t req, struct place at)
{
	struct client *c = req_fs(req)->client;
	uint64_t us = ll_name_us(c, at.dir, bytes_str(at.name), (struct ino){0});
	struct fuse_entry_param e = {.entry_timeout = (double)us / 1e6};

	if (us == 0)
		reply_status(req, -LE_NOENT);
	else
		fuse_reply_entry(req, &e);
}

static void looked(fuse_req_t req, const struct cred *cred, struct ino dir)
{
	struct leatfs *fs = req_fs(req);
	enum look look = readdirplus_lookup(&fs->readdirplus_policy, fuse_req_ctx(req)->pid, dir.v);

	if (look != LOOK_OTHER)
		ll_prefetch_attrs(fs->client, cred, dir, look == LOOK_FIRST);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct place at = {ino_of(fs, parent), name};
	uint64_t begun_us = loop_now_us();
	struct req_cred rc;
	struct attr attr;
	int status;

	req_cred_init(req, &rc);
	/* Lookups for file handles (open_by_handle_at): "." is the inode itself, of any type; ".."
	 * the directory above it. The root of the mount is its own parent, since what is above
	 * belongs to another file system. */
	if (strcmp(name, ".") == 0 || (strcmp(name, "..") == 0 && parent == FUSE_ROOT_ID)) {
		status = ll_getattr(fs->client, &rc.cred, ino_of(fs, parent), &attr);
		if (status < 0)
			reply_status(req, status);
		else
			reply_entry(req, (struct place){0}, begun_us, &attr);
		return;
	}
	status = ll_lookup(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name), &attr);
	estale_retry_found(&fs->estale_retry, fuse_req_ctx(req)->pid, status < 0 ? 0 : attr.ino.v);
	if (status == 0 && !S_ISDIR(attr.mode))
		looked(req, &rc.cred, ino_of(fs, parent));
	if (status == 0)
		reply_entry(req, at, begun_us, &attr);
	else if (status == -LE_NOENT)
		reply_none(req, at);
	else
		reply_status(req, status);
}

/* The daemon stores nothing per inode: see mount.h. */
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	(void)ino, (void)nlookup;
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count, (void)forgets;
	fuse_reply_none(req);
}

static void reply_made(fuse_req_t req, int status, struct place at, const struct attr *attr)
{
	if (status < 0)
		reply_status(req, status);
	else
		reply_entry(req, at, 0, attr);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_mknod(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name), mode,
			    (uint32_t)rdev, &attr),
		   (struct place){ino_of(fs, parent), name}, &attr);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_mkdir(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name), mode, &attr),
		   (struct place){ino_of(fs, parent), name}, &attr);
}

void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_symlink(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name),
			      bytes_str(link), &attr),
		   (struct place){ino_of(fs, parent), name}, &attr);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_link(fs->client, &rc.cred, ino_of(fs, ino), ino_of(fs, new_parent),
			   bytes_str(new_name), &attr),
		   (struct place){ino_of(fs, new_parent), new_name}, &attr);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_unlink(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name)));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_rmdir(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name)));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_rename(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name),
				    ino_of(fs, new_parent), bytes_str(new_name), flags));
}

/* ---- listing ---- */

/*
 * An open directory, which the kernel names by a number. It holds the last batch from the servers,
 * because the kernel requests a page at a time. A listing that continues where the last reply ended
 * is served from the batch.
 */
#define MOUNT_DIR_MAGIC 0x4c444952u
#define BATCH_MAX       1024u
struct entry {
	struct attr attr;
	uint64_t cookie;
	char name[LEAT_NAME_MAX + 1];
};
struct mount_dir {
	uint32_t magic;
	struct hmap_node node; /* of fs->dirs */
	uint64_t fh;
	struct ino ino;
	uint32_t refs; /* one for its number, one for each request that uses it */
	uint32_t n, at;
	bool plus, eof, held;
	struct fmutex lock; /* two threads may list through one descriptor */
	struct entry *entries;
};

static struct mount_dir *find_dir(const struct leatfs *fs, uint64_t fh)
{
	struct hmap_node *n = hmap_find(&fs->dirs, hash_u64(fh));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct mount_dir *d = container_of(n, struct mount_dir, node);

		if (d->fh == fh)
			return d;
	}
	return NULL;
}

/* Returns the directory of that number, with a reference. A number that a previous daemon gave
 * starts a new listing. NULL: no memory. */
static struct mount_dir *dir_get(struct leatfs *fs, struct ino ino, uint64_t fh)
{
	struct mount_dir *d = find_dir(fs, fh);

	if (d == NULL) {
		d = calloc(1, sizeof(*d));
		if (d == NULL)
			return NULL;
		d->magic = MOUNT_DIR_MAGIC;
		d->fh = fh;
		d->ino = ino;
		d->held = ll_hold(fs->client, ino);
		d->refs = 1;
		fmutex_init(&d->lock);
		hmap_insert(&fs->dirs, &d->node, hash_u64(fh));
	}
	d->refs++;
	return d;
}

static void dir_put(struct leatfs *fs, struct mount_dir *d)
{
	ASSERT(d->magic == MOUNT_DIR_MAGIC && d->refs > 0);
	if (--d->refs > 0)
		return;
	if (d->held)
		ll_unhold(fs->client, d->ino);
	free(d->entries);
	d->magic = 0;
	free(d);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct mount_dir *d = dir_get(fs, ino_of(fs, ino), fs->restart->next_dir++);

	if (!d) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	fi->fh = d->fh;
	dir_put(fs, d);
	fuse_reply_open(req, fi);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct mount_dir *d = find_dir(fs, fi->fh);

	(void)ino;
	if (d) {
		hmap_remove(&fs->dirs, &d->node);
		dir_put(fs, d);
	}
	fuse_reply_err(req, 0);
}

/* Every metadata reply is durable already. */
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino, (void)datasync, (void)fi;
	fuse_reply_err(req, 0);
}

static int take_entry(void *arg, const struct ll_dirent *e)
{
	struct mount_dir *d = CAST_OBJ(arg, struct mount_dir, MOUNT_DIR_MAGIC);

	if (d->n == BATCH_MAX)
		return 1;
	if (e->name.len > LEAT_NAME_MAX)
		return 0;
	struct entry *to = &d->entries[d->n++];
	to->attr = e->attr;
	to->cookie = e->cookie;
	memcpy(to->name, e->name.data, e->name.len);
	to->name[e->name.len] = '\0';
	return 0;
}

/* Returns the place of an entry. The kernel sends it to request the entries after this one. */
static uint64_t place_of(const struct leatfs *fs, uint64_t cookie)
{
	return fs->ino32 && cookie > 2 ? ino32_place(cookie) : cookie;
}

/* True if the entry at that place is the last one that was returned. */
static bool is_last(const struct leatfs *fs, const struct mount_dir *d, uint64_t place)
{
	return d->at > 0 && place_of(fs, d->entries[d->at - 1].cookie) == place;
}

/* True if the batch has the first entry after that place. */
static bool is_here(const struct leatfs *fs, const struct mount_dir *d, uint64_t place, bool plus)
{
	return d->at < d->n && d->plus == plus && is_last(fs, d, place);
}

static int fetch(struct leatfs *fs, const struct cred *cred, struct mount_dir *d, uint64_t cookie)
{
	if (!d->entries) {
		d->entries = malloc(BATCH_MAX * sizeof(struct entry));
		if (!d->entries)
			return -LE_NOMEM;
	}
	d->n = d->at = 0;
	TRY(ll_readdir(fs->client, cred, d->ino, cookie, d->plus, take_entry, d, &d->eof));
	return d->n > 0 ? 0 : -LE_NODATA;
}

/* After seekdir(3) to a place: the first entry that has this place was listed before. */
static int fetch_place(struct leatfs *fs, const struct cred *cred, struct mount_dir *d,
		       uint64_t place)
{
	TRY(fetch(fs, cred, d, ino32_before(place)));
	if (place_of(fs, d->entries[0].cookie) != place)
		return 0;
	d->at = 1;
	if (d->at < d->n)
		return 0;
	return d->eof ? -LE_NODATA : fetch(fs, cred, d, d->entries[0].cookie);
}

/* Makes d->at the first entry after that place; 2: the first of all. Returns 0, -LE_NODATA at the
 * end, or another status. Yields. */
static int seek_entry(struct leatfs *fs, const struct cred *cred, struct mount_dir *d,
		      uint64_t place, bool plus)
{
	bool last = is_last(fs, d, place);

	if (is_here(fs, d, place, plus))
		return 0;
	if (last && d->at == d->n && d->eof)
		return -LE_NODATA;
	d->plus = plus;
	if (last)
		return fetch(fs, cred, d, d->entries[d->at - 1].cookie);
	if (fs->ino32 && place > 2)
		return fetch_place(fs, cred, d, place);
	return fetch(fs, cred, d, place == 2 ? 0 : place);
}

/* The form of the reply. */
enum form {
	FORM_READDIR,
	FORM_NAMES, /* to READDIRPLUS, but without attributes */
	FORM_PLUS
};

static bool with_attr(struct leatfs *fs, pid_t thread, const struct attr *attr)
{
	return !kernel_size_not_notified(fs, attr->ino, attr->size) &&
	       (S_ISDIR(attr->mode) || !readdirplus_probe(&fs->readdirplus_policy, thread));
}

/* Adds one entry to the reply. Returns its length, which is more than size if it did not fit. */
static size_t add_entry(fuse_req_t req, struct ino dir, char *buf, size_t size,
			const struct entry *e, enum form form)
{
	struct fuse_entry_param p = {.attr = {.st_mode = e->attr.mode}};
	struct leatfs *fs = req_fs(req);
	off_t place = (off_t)place_of(fs, e->cookie);
	struct attr attr = e->attr;

	p.attr.st_ino = visible_ino(fs, e->attr.ino);
	if (form == FORM_READDIR)
		return fuse_add_direntry(req, buf, size, e->name, &p.attr, place);
	/* The batch may be older than a change that this mount has made. */
	if (form == FORM_PLUS && ll_still_listed(fs->client, dir, bytes_str(e->name), &attr) &&
	    with_attr(fs, fuse_req_ctx(req)->pid, &attr)) {
		entry_init(req, (struct place){dir, e->name}, 0, &attr, &p);
		/* Without a valid size the kernel must request the attributes itself. */
		if ((attr.flags & ATTR_UNSETTLED) || p.attr_timeout == 0)
			p.ino = 0;
	}
	return fuse_add_direntry_plus(req, buf, size, e->name, &p, place);
}

/* "." and ".." have the cookies 1 and 2; real ones are above 15. */
static size_t add_dots(fuse_req_t req, char *buf, size_t size, struct ino ino, uint64_t *place,
		       enum form form)
{
	size_t len = 0;

	while (*place < 2) {
		struct entry e = {.attr = {.ino = ino, .mode = S_IFDIR, .flags = ATTR_UNSETTLED},
				  .cookie = *place + 1};
		memcpy(e.name, "..", *place == 0 ? 1 : 2);
		size_t n = add_entry(req, ino, buf + len, size - len, &e, form);
		if (n > size - len)
			break;
		len += n;
		(*place)++;
	}
	return len;
}

static void list(fuse_req_t req, struct ino ino, size_t size, uint64_t place, struct mount_dir *d,
		 enum form form)
{
	struct leatfs *fs = req_fs(req);
	bool plus = form == FORM_PLUS;
	struct req_cred rc;
	bool told = false;
	char *buf;
	size_t len;
	int status = 0;

	if (size > 1 << 20)
		size = 1 << 20;
	buf = malloc(size);
	if (!buf) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	req_cred_init(req, &rc);
	len = add_dots(req, buf, size, ino, &place, form);
	while (place >= 2) {
		/* The entries in the reply have timeouts already, so they must not wait for a
		 * request to the servers. */
		if (plus && told && !is_here(fs, d, place, plus))
			break;
		status = seek_entry(fs, &rc.cred, d, place, plus);
		if (status < 0)
			break;
		const struct entry *e = &d->entries[d->at];
		size_t n = add_entry(req, ino, buf + len, size - len, e, form);
		if (n > size - len)
			break;
		len += n;
		place = place_of(fs, e->cookie);
		told = true;
		d->at++;
	}
	if (status < 0 && status != -LE_NODATA && len == 0)
		reply_status(req, status);
	else
		fuse_reply_buf(req, buf, len);
	free(buf);
}

static void list_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     const struct fuse_file_info *fi, enum form form)
{
	struct leatfs *fs = req_fs(req);
	struct mount_dir *d = dir_get(fs, ino_of(fs, ino), fi->fh);

	if (!d) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	fmutex_lock(&d->lock);
	list(req, ino_of(fs, ino), size, (uint64_t)off, d, form);
	fmutex_unlock(&d->lock);
	dir_put(fs, d);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list_dir(req, ino, size, off, fi, FORM_READDIR);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	bool want = readdirplus_wanted(&fs->readdirplus_policy, fuse_req_ctx(req)->pid,
				       ino_of(fs, ino).v);

	list_dir(req, ino, size, off, fi, want ? FORM_PLUS : FORM_NAMES);
}
