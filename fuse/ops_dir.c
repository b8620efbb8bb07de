/* Names: lookup, creation, removal, rename, links, directory listing. Runs in request fibers. */
#include "fuse/mount.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/kept.h"

/* ---- one name ---- */

/* There is no such name, which the kernel may cache too. */
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
	enum look look = listers_looked(&fs->listers, fuse_req_ctx(req)->pid, dir.v);

	if (look != LOOK_OTHER)
		ll_look_ahead(fs->client, cred, dir, look == LOOK_FIRST);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct place at = {ino_of(parent), name};
	uint64_t begun_us = loop_now_us();
	struct req_cred rc;
	struct attr attr;
	int status;

	req_cred_init(req, &rc);
	/* Of file handles (open_by_handle_at): the inode itself, of any type, and the directory
	 * above one. What is above the root of the mount is not of this file system. */
	if (strcmp(name, ".") == 0 || (strcmp(name, "..") == 0 && parent == FUSE_ROOT_ID)) {
		status = ll_getattr(fs->client, &rc.cred, ino_of(parent), &attr);
		if (status < 0)
			reply_status(req, status);
		else
			reply_entry(req, (struct place){0}, begun_us, &attr);
		return;
	}
	status = ll_lookup(fs->client, &rc.cred, ino_of(parent), bytes_str(name), &attr);
	refused_found(&fs->refused, fuse_req_ctx(req)->pid, status < 0 ? 0 : attr.ino.v);
	if (status == 0 && !S_ISDIR(attr.mode))
		looked(req, &rc.cred, ino_of(parent));
	if (status == 0)
		reply_entry(req, at, begun_us, &attr);
	else if (status == -LE_NOENT)
		reply_none(req, at);
	else
		reply_status(req, status);
}

/* Nothing is kept per inode: see mount.h. */
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
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_mknod(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name), mode,
			    (uint32_t)rdev, &attr),
		   (struct place){ino_of(parent), name}, &attr);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_mkdir(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name), mode,
			    &attr),
		   (struct place){ino_of(parent), name}, &attr);
}

void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_symlink(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name),
			      bytes_str(link), &attr),
		   (struct place){ino_of(parent), name}, &attr);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct req_cred rc;
	struct attr attr;

	req_cred_init(req, &rc);
	reply_made(req,
		   ll_link(req_fs(req)->client, &rc.cred, ino_of(ino), ino_of(new_parent),
			   bytes_str(new_name), &attr),
		   (struct place){ino_of(new_parent), new_name}, &attr);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req,
		     ll_unlink(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name)));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_rmdir(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name)));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags)
{
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_rename(req_fs(req)->client, &rc.cred, ino_of(parent), bytes_str(name),
				    ino_of(new_parent), bytes_str(new_name), flags));
}

/* ---- listing ---- */

/*
 * An open directory is a number for the kernel. It keeps the batch that the servers gave last,
 * because the kernel asks for a page at a time. A listing that goes on where the last one ended is
 * served from it.
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
	uint32_t refs; /* its number's, and who works with it */
	uint32_t n, at;
	bool plus, eof, held;
	struct fmutex lock; /* the kernel may list one descriptor from two threads */
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

/* The directory of that number: one that a former daemon gave is new here. NULL: no memory. */
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
	struct mount_dir *d = dir_get(fs, ino_of(ino), fs->kept->next_dir++);

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
	struct mount_dir *d = arg;

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

/* Is the first entry behind cookie the next one of what was fetched? */
static bool is_here(const struct mount_dir *d, uint64_t cookie, bool plus)
{
	return d->at < d->n && d->at > 0 && d->plus == plus &&
	       d->entries[d->at - 1].cookie == cookie;
}

/* Makes d->at the first entry behind cookie; -LE_NODATA at the end. */
static int seek_entry(struct leatfs *fs, const struct cred *cred, struct mount_dir *d,
		      struct ino ino, uint64_t cookie, bool plus)
{
	if (is_here(d, cookie, plus))
		return 0;
	if (d->n > 0 && d->at == d->n && d->eof && d->entries[d->n - 1].cookie == cookie)
		return -LE_NODATA;
	if (!d->entries) {
		d->entries = malloc(BATCH_MAX * sizeof(struct entry));
		if (!d->entries)
			return -LE_NOMEM;
	}
	d->n = d->at = 0;
	d->plus = plus;
	TRY(ll_readdir(fs->client, cred, ino, cookie, plus, take_entry, d, &d->eof));
	return d->n > 0 ? 0 : -LE_NODATA;
}

/* What the kernel gets. */
enum form {
	FORM_READDIR,
	FORM_NAMES, /* of READDIRPLUS, but without attributes */
	FORM_PLUS
};

static bool with_attr(struct leatfs *fs, pid_t thread, const struct attr *attr)
{
	return !known_size_untold(fs, attr->ino, attr->size) &&
	       (S_ISDIR(attr->mode) || !listers_probe(&fs->listers, thread));
}

/* Adds one entry to the reply; the bytes it took, or more than size when it did not fit. */
static size_t add_entry(fuse_req_t req, struct ino dir, char *buf, size_t size,
			const struct entry *e, enum form form)
{
	struct fuse_entry_param p = {.attr = {.st_ino = e->attr.ino.v, .st_mode = e->attr.mode}};
	struct leatfs *fs = req_fs(req);
	struct attr attr = e->attr;

	if (form == FORM_READDIR)
		return fuse_add_direntry(req, buf, size, e->name, &p.attr, (off_t)e->cookie);
	/* It was fetched a while ago, perhaps, and this mount has changed it since. */
	if (form == FORM_PLUS && ll_still_listed(fs->client, dir, bytes_str(e->name), &attr) &&
	    with_attr(fs, fuse_req_ctx(req)->pid, &attr)) {
		entry_init(req, (struct place){dir, e->name}, 0, &attr, &p);
		/* Size not known here: the kernel shall ask by itself. */
		if ((attr.flags & ATTR_UNSETTLED) || p.attr_timeout == 0)
			p.ino = 0;
	}
	return fuse_add_direntry_plus(req, buf, size, e->name, &p, (off_t)e->cookie);
}

/* "." and ".." have the cookies 1 and 2; real ones are above 15. */
static size_t add_dots(fuse_req_t req, char *buf, size_t size, struct ino ino, uint64_t *cookie,
		       enum form form)
{
	size_t len = 0;

	while (*cookie < 2) {
		struct entry e = {.attr = {.ino = ino, .mode = S_IFDIR, .flags = ATTR_UNSETTLED},
				  .cookie = *cookie + 1};
		memcpy(e.name, "..", *cookie == 0 ? 1 : 2);
		size_t n = add_entry(req, ino, buf + len, size - len, &e, form);
		if (n > size - len)
			break;
		len += n;
		(*cookie)++;
	}
	return len;
}

static void list(fuse_req_t req, struct ino ino, size_t size, uint64_t cookie, struct mount_dir *d,
		 enum form form)
{
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
	len = add_dots(req, buf, size, ino, &cookie, form);
	while (cookie >= 2) {
		/* For how long attributes hold was said: they do not wait until more is fetched. */
		if (plus && told && !is_here(d, cookie, plus))
			break;
		status = seek_entry(req_fs(req), &rc.cred, d, ino, cookie == 2 ? 0 : cookie, plus);
		if (status < 0)
			break;
		const struct entry *e = &d->entries[d->at];
		size_t n = add_entry(req, ino, buf + len, size - len, e, form);
		if (n > size - len)
			break;
		len += n;
		cookie = e->cookie;
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
	struct mount_dir *d = dir_get(fs, ino_of(ino), fi->fh);

	if (!d) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	fmutex_lock(&d->lock);
	list(req, ino_of(ino), size, (uint64_t)off, d, form);
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
	bool want = listers_want(&req_fs(req)->listers, fuse_req_ctx(req)->pid, ino_of(ino).v);

	list_dir(req, ino, size, off, fi, want ? FORM_PLUS : FORM_NAMES);
}
