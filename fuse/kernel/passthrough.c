/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/stage/store/staged.h"
#include "common/base/hmap.h"
#include "common/base/log.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/restart/restart_state.h"

/* linux/fuse.h of Linux 6.9. fuse_passthrough_close needs a request, which not every close has. */
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define HAVE_PASSTHROUGH 1
#endif

/* How often a file that is open without a copy checks whether it has been staged. */
#define RETRY_US 100000u

enum pass_mode {
	PASS_OFF,    /* staged copies are read by the daemon only */
	PASS_SEALED, /* sealed files only: no client can change them */
	PASS_STAGED  /* any file that has a copy of its version */
};

struct passthrough {
	struct leatfs *fs;
	struct staged *staged;
	enum pass_mode mode;
	char dirs[4096];
	const char *why_not; /* why the kernel does not pass through; NULL: it does */
	struct hmap inodes;
	uint64_t n_passed, n_daemon; /* opens */
	uint64_t copy_bytes;         /* read by the daemon out of copies */
};

/* An inode that is open here. */
struct pass_inode {
	struct hmap_node node;
	uint64_t ino;
	uint32_t n_pass, n_plain;
	uint32_t users;     /* struct pass_file that refer to it */
	int32_t backing_id; /* while n_pass > 0 */
	bool sealed;
	bool changed; /* while it was open: no open file reads copies of it any longer */
	uint64_t ver;             /* of the backing file */
	struct staged_copy *copy; /* that has the backing file */
};

enum pass_how {
	HOW_NONE, /* not decided yet */
	HOW_PLAIN,
	HOW_PASS
};

struct pass_file {
	struct passthrough *p;
	struct pass_inode *inode;
	enum pass_how how;
	bool writer;
	bool sealed;
	bool looking, local_bad;
	struct staged_want want;
	int fd; /* of the staged copy, read by the daemon; -1: none */
	struct staged_copy *copy;
	uint64_t generation, look_us;
};

/* ---- lifetime ---- */

static bool on_overlay(const char *dirs)
{
	char copy[4096], *save = NULL;
	struct statfs st;

	snprintf(copy, sizeof(copy), "%s", dirs);
	for (char *d = strtok_r(copy, " ,:", &save); d; d = strtok_r(NULL, " ,:", &save))
		if (statfs(d, &st) == 0 && (unsigned long)st.f_type == OVERLAYFS_SUPER_MAGIC)
			return true;
	return false;
}

int passthrough_create(struct leatfs *fs, const char *stage_dir, const char *mode,
		       struct passthrough **ret_passthrough)
{
	static const char *const modes[] = {"off", "sealed", "staged"};
	struct passthrough *p;

	if (!stage_dir[0])
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -LE_NOMEM;
	while (p->mode < ARRAY_SIZE(modes) && strcmp(mode, modes[p->mode]) != 0)
		p->mode++;
	if (p->mode == ARRAY_SIZE(modes)) {
		log_error("passthrough: '%s' is not off, sealed or staged", mode);
		free(p);
		return -LE_CONFIG;
	}
	p->fs = fs;
	p->why_not = p->mode == PASS_OFF ? "switched off" : "not negotiated";
	snprintf(p->dirs, sizeof(p->dirs), "%s", stage_dir);
	hmap_init(&p->inodes, 256);
	*ret_passthrough = p;
	return 0;
}

int passthrough_start(struct passthrough *p)
{
	struct uuid cluster;
	int status;

	if (!p)
		return 0;
	cluster = ll_cluster(p->fs->client);
	status = staged_create(p->fs->env, p->dirs, &cluster, &p->staged);
	if (status < 0)
		log_error("stage_dir: '%s' is not a list of at most %u absolute paths", p->dirs,
			  STAGED_DIRS_MAX);
	return status;
}

void passthrough_destroy(struct passthrough *p)
{
	if (!p)
		return;
	/* A forced unmount leaves files open here; the process ends anyway. */
	if (p->inodes.n == 0)
		staged_destroy(p->staged);
	hmap_fini(&p->inodes);
	free(p);
}

void passthrough_negotiate(struct leatfs *fs, struct fuse_conn_info *conn)
{
	struct passthrough *p = fs->pages.passthrough;

	if (!p || p->mode == PASS_OFF)
		return;
#ifdef HAVE_PASSTHROUGH
	if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH)) {
		p->why_not = "the kernel cannot (6.9 and newer can)";
		return;
	}
	/* With a stack depth no file system can be stacked over this mount, so it is set only where
	 * it is needed. */
	if (!fs->restart->init_done)
		fs->restart->on_overlay = on_overlay(p->dirs);
	conn->max_backing_stack_depth = fs->restart->on_overlay;
	p->why_not = NULL;
#else
	(void)conn, (void)on_overlay;
	p->why_not = "built with a libfuse older than 3.17";
#endif
}

/* ---- inodes ---- */

/* p may be NULL. */
static struct pass_inode *inode_find(const struct passthrough *p, uint64_t ino)
{
	struct hmap_node *n = p ? hmap_find(&p->inodes, hash_u64(ino)) : NULL;

	for (; n; n = hmap_find_next(n)) {
		struct pass_inode *i = container_of(n, struct pass_inode, node);
		if (i->ino == ino)
			return i;
	}
	return NULL;
}

static struct pass_file *file_create(struct passthrough *p, uint64_t ino)
{
	struct pass_inode *i = inode_find(p, ino);
	struct pass_file *f = calloc(1, sizeof(*f));

	if (f && !i) {
		i = calloc(1, sizeof(*i));
		if (i) {
			i->ino = ino;
			hmap_insert(&p->inodes, &i->node, hash_u64(ino));
		}
	}
	if (!f || !i) {
		free(f);
		return NULL;
	}
	f->p = p;
	f->inode = i;
	f->fd = -1;
	i->users++;
	return f;
}

static bool writes(uint32_t flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

static bool is_busy(const struct leatfs *fs, uint64_t ino)
{
	struct pass_inode *i = inode_find(fs->pages.passthrough, ino);

	/* The metadata server refuses to change a sealed file. */
	return i && i->n_pass > 0 && !i->sealed;
}

void passthrough_changed(struct leatfs *fs, uint64_t ino)
{
	struct pass_inode *i = inode_find(fs->pages.passthrough, ino);

	if (i && !i->sealed)
		i->changed = true;
}

int passthrough_may_change(struct leatfs *fs, uint64_t ino)
{
	if (is_busy(fs, ino))
		return -LE_BUSY;
	passthrough_changed(fs, ino);
	return 0;
}

int passthrough_begin(struct leatfs *fs, uint64_t ino, uint32_t flags, struct pass_file **ret_file)
{
	struct pass_file *f;

	*ret_file = NULL;
	if (!fs->pages.passthrough || !writes(flags))
		return 0;
	if (is_busy(fs, ino))
		return -LE_BUSY;
	f = file_create(fs->pages.passthrough, ino);
	if (!f)
		return -LE_NOMEM;
	/* From here on no open file of the inode starts to pass through. */
	f->writer = true;
	f->inode->changed = true;
	*ret_file = f;
	return 0;
}

static void backing_close(const struct leatfs *fs, int32_t id)
{
	if (ioctl(fuse_session_fd(fs->session), BACKING_CLOSE, &id) < 0)
		log_warn("the kernel keeps a staged file open until unmount, so its space is not "
			 "freed "
			 "before: %s",
			 strerror(errno));
}

void passthrough_end(struct pass_file *f)
{
	struct pass_inode *i;

	if (!f)
		return;
	i = f->inode;
	ASSERT(i->users >= i->n_plain + i->n_pass && i->users > 0);
	i->n_plain -= f->how == HOW_PLAIN;
	i->n_pass -= f->how == HOW_PASS;
	if (f->how == HOW_PASS && i->n_pass == 0) {
		backing_close(f->p->fs, i->backing_id);
		if (i->copy)
			staged_put(i->copy);
		i->copy = NULL;
	}
	if (f->fd >= 0)
		close(f->fd);
	if (f->copy)
		staged_put(f->copy);
	if (--i->users == 0) {
		ASSERT(i->n_plain == 0 && i->n_pass == 0 && i->copy == NULL);
		hmap_remove(&f->p->inodes, &i->node);
		free(i);
	}
	free(f);
}

/* ---- opening ---- */

/* Returns the id of a backing file; 0: the kernel refuses. */
static int32_t backing_open(fuse_req_t req, struct passthrough *p, int fd)
{
#ifdef HAVE_PASSTHROUGH
	if (p->why_not)
		return 0;
	int32_t id = fuse_passthrough_open(req, fd);
	if (id > 0)
		return id;
	if (errno == EPERM) {
		p->why_not = "the mount lacks CAP_SYS_ADMIN";
		log_warn("the daemon reads staged files, the kernel does not (passthrough): %s",
			 p->why_not);
	} else {
		static bool told;
		if (!told)
			log_warn("the daemon reads a staged file, the kernel does not "
				 "(passthrough): %s; this is logged once",
				 strerror(errno));
		told = true;
	}
#else
	(void)req, (void)p, (void)fd;
#endif
	return 0;
}

static void reply_passed(struct pass_file *f, struct fuse_file_info *fi)
{
	f->how = HOW_PASS;
	f->inode->n_pass++;
	f->p->n_passed++;
#ifdef HAVE_PASSTHROUGH
	fi->backing_id = f->inode->backing_id;
#endif
	fi->keep_cache = 0;
	/* A version other than that of the backing file: the kernel sends its reads to the
	 * daemon. */
	fi->direct_io = f->want.ver != f->inode->ver;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
	fi->parallel_direct_writes = 0;
#endif
}

static void look_for_copy(struct pass_file *f)
{
	struct passthrough *p = f->p;
	struct staged_copy *copy;

	f->generation = staged_generation(p->staged);
	f->look_us = loop_now_us();
	f->looking = true;
	int fd = staged_open(p->staged, &f->want, &copy);
	f->looking = false;
	if (fd < 0)
		return;
	f->fd = fd;
	f->copy = copy;
}

static void decide(fuse_req_t req, struct pass_file *f, struct fuse_file_info *fi)
{
	struct pass_inode *i = f->inode;

	ASSERT(f->how == HOW_NONE);
	if (i->n_pass > 0) {
		reply_passed(f, fi);
		return;
	}
	if (f->fd >= 0 && i->n_plain == 0 && !i->changed &&
	    (f->sealed || f->p->mode == PASS_STAGED)) {
		int32_t id = backing_open(req, f->p, f->fd);
		if (id > 0) {
			i->backing_id = id;
			i->ver = f->want.ver;
			i->copy = f->copy;
			f->copy = NULL;
			close(f->fd);
			f->fd = -1;
			reply_passed(f, fi);
			return;
		}
	}
	f->how = HOW_PLAIN;
	i->n_plain++;
	if (f->fd >= 0)
		f->p->n_daemon++;
}

int passthrough_open(fuse_req_t req, const struct attr *attr, struct fuse_file_info *fi,
		     struct pass_file **file)
{
	struct leatfs *fs = req_fs(req);
	struct pass_file *f = *file;

	if (!fs->pages.passthrough)
		return 0;
	/* If another mount created the file first, it exists already. */
	if (writes((uint32_t)fi->flags) && is_busy(fs, attr->ino.v))
		return -LE_BUSY;
	if (!f) {
		f = file_create(fs->pages.passthrough, attr->ino.v);
		if (!f)
			return -LE_NOMEM;
		f->writer = writes((uint32_t)fi->flags);
		f->inode->changed |= f->writer;
		*file = f;
	}
	f->sealed = (attr->flags & ATTR_SEALED) != 0;
	f->inode->sealed |= f->sealed;
	f->want = (struct staged_want){
		.ino = attr->ino.v,
		/* A client has the file open for writing, or just had, so its version is not
		 * final. */
		.ver = attr->flags & ATTR_UNSETTLED ? UINT64_MAX : attr->change,
		.size = attr->size,
		.uid = attr->uid,
	};
	/* Without a lease this mount is not notified when another client changes the file. */
	if ((f->sealed || (attr->flags & ATTR_LEASED)) && !f->writer && S_ISREG(attr->mode) &&
	    attr->size > 0 && f->want.ver != UINT64_MAX && !f->inode->changed &&
	    !(f->inode->n_pass > 0 && f->inode->ver == f->want.ver))
		look_for_copy(f);
	/* No yield from here to the reply, so that the kernel gets replies in the order of the
	 * decisions. */
	decide(req, f, fi);
	return 0;
}

/* ---- from daemon to daemon ---- */

void passthrough_note(const struct pass_file *f, struct restart_state_pass *ret_kept)
{
	*ret_kept = (struct restart_state_pass){0};
	if (!f || f->how != HOW_PASS)
		return;
	ret_kept->ver = f->inode->ver;
	ret_kept->backing_id = f->inode->backing_id;
	ret_kept->sealed = f->sealed;
}

int passthrough_resume(struct leatfs *fs, uint64_t ino, uint32_t flags,
		       const struct restart_state_pass *restart, struct pass_file **ret_file)
{
	struct pass_file *f;
	struct pass_inode *i;

	*ret_file = NULL;
	if (!fs->pages.passthrough)
		return 0;
	f = file_create(fs->pages.passthrough, ino);
	if (!f)
		return -LE_NOMEM;
	i = f->inode;
	f->writer = writes(flags);
	f->local_bad = true;
	i->changed |= f->writer;
	if (restart->backing_id > 0) {
		f->how = HOW_PASS;
		f->sealed = restart->sealed != 0;
		i->sealed |= f->sealed;
		i->backing_id = restart->backing_id;
		i->ver = restart->ver;
		i->n_pass++;
	} else {
		f->how = HOW_PLAIN;
		i->n_plain++;
	}
	*ret_file = f;
	return 0;
}

/* ---- reading out of the copy ---- */

struct disk_read {
	int fd;
	uint8_t *buf;
	size_t len;
	off_t off;
	ssize_t n;
	int flags;
};

static void read_worker(void *arg)
{
	struct disk_read *r = arg;
	size_t done = 0;

	while (done < r->len) {
		struct iovec v = {r->buf + done, r->len - done};
		ssize_t n = preadv2(r->fd, &v, 1, r->off + (off_t)done, r->flags);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	r->n = (ssize_t)done;
}

/* Returns true if the daemon may read the file out of a copy. A sealed file may have been staged
 * after its open, so it gets the copy then. Other files do not, since an open file must show writes
 * of other clients. Yields. */
static bool has_copy(struct pass_file *f)
{
	if (f->local_bad || f->inode->changed)
		return false;
	if (f->fd >= 0)
		return f->sealed || f->how == HOW_PLAIN;
	if (!f->sealed || f->writer || f->looking || loop_now_us() < f->look_us + RETRY_US)
		return false;
	f->look_us = loop_now_us();
	if (staged_generation(f->p->staged) != f->generation)
		look_for_copy(f);
	return f->fd >= 0;
}

bool passthrough_read(fuse_req_t req, struct pass_file *f, size_t size, off_t off)
{
	struct leatfs *fs = req_fs(req);
	struct slot *slot;
	bool good;

	if (!f || !has_copy(f))
		return false;
	uint64_t left = (uint64_t)off < f->want.size ? f->want.size - (uint64_t)off : 0;
	size_t len = size < left ? size : (size_t)left;
	if (len > fs->max_write || slot_get(fs->requests, NO_DEADLINE, &slot) < 0)
		return false;
	/* Pages in the page cache can be read without a worker thread. */
	struct disk_read r = {f->fd, slot->data, len, off, 0, RWF_NOWAIT};
	read_worker(&r);
	good = (size_t)r.n == len;
	if (!good) {
		size_t have = (size_t)r.n;
		r = (struct disk_read){f->fd, slot->data + have, len - have, off + (off_t)have, 0,
				       0};
		good = env_offload(fs->env, read_worker, &r) == 0 && have + (size_t)r.n == len;
	}
	if (good) {
		fuse_reply_buf(req, (const char *)slot->data, len);
		metric_add(&fs->metrics.read_bytes, len);
		f->p->copy_bytes += len;
	} else if (!f->local_bad) {
		/* The servers have the data, too. */
		f->local_bad = true;
		log_warn("inode %llu: its staged copy cannot be read; reading from the servers",
			 (unsigned long long)f->want.ino);
	}
	slot_unref(slot);
	return good;
}

/* ---- leat status ---- */

void passthrough_status(const struct leatfs *fs, char *buf, size_t size)
{
	const struct passthrough *p = fs->pages.passthrough;
	struct staged_stats st = {0};
	const char *text = "off: no stage_dir is given";
	char why[128];

	if (p) {
		staged_stats(p->staged, &st);
		snprintf(why, sizeof(why), "off: %s", p->why_not ? p->why_not : "");
		text = p->why_not ? why : p->mode == PASS_SEALED ? "sealed files" : "staged files";
	}
	snprintf(buf, size,
		 "\"passthrough\":\"%s\",\"staged_copies\":%u,\"staged_refused\":%u,"
		 "\"staged_opens_passed\":%llu,\"staged_opens_daemon\":%llu,"
		 "\"staged_bytes_daemon\":%llu",
		 text, st.copies, st.refused, p ? (unsigned long long)p->n_passed : 0,
		 p ? (unsigned long long)p->n_daemon : 0,
		 p ? (unsigned long long)p->copy_bytes : 0);
}
