/* Attributes, extended attributes, statfs, symbolic links' targets. Runs in request fibers. */
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "common/base/log.h"
#include "common/proto/mds_proto.h"
#include "fuse/passthrough.h"

#define LOG_AGAIN_US 1000000u
#define NS_PER_S     1000000000ll
#define LIST_MAX     65536u /* of listxattr(2) */
/* What only the owner may set. */
#define SET_BY_OWNER (SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME)

static void interrupted(fuse_req_t req, void *arg)
{
	(void)req;
	fiber_interrupt(arg);
}

void req_interruptible(fuse_req_t req, bool may)
{
	fuse_req_interrupt_func(req, may ? interrupted : NULL, may ? fiber_self() : NULL);
	if (!may)
		(void)fiber_interrupt_clear();
}

/* Of times before 1970 too. */
static struct timespec ns_timespec(int64_t ns)
{
	int64_t rest = ns % NS_PER_S;

	return (struct timespec){.tv_sec = ns / NS_PER_S - (rest < 0),
				 .tv_nsec = rest < 0 ? rest + NS_PER_S : rest};
}

static void signalled(fuse_req_t req, void *arg)
{
	killed_signal(&req_fs(req)->killed, arg);
}

void req_killable_begin(fuse_req_t req, struct killable *r)
{
	killable_init(r, fuse_req_ctx(req)->pid, NULL);
	fuse_req_interrupt_func(req, signalled, r);
}

void req_killable_end(fuse_req_t req, struct killable *r)
{
	fuse_req_interrupt_func(req, NULL, NULL);
	killable_fini(r);
}

void attr_to_stat(const struct attr *a, struct stat *ret_st)
{
	*ret_st = (struct stat){
		.st_ino = a->ino.v,
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = a->uid,
		.st_gid = a->gid,
		.st_rdev = a->rdev,
		.st_size = (off_t)a->size,
		.st_blocks = (blkcnt_t)a->blocks,
		.st_blksize = a->layout.chunk_size ? a->layout.chunk_size : 4096,
		.st_atim = ns_timespec(a->atime_ns),
		.st_mtim = ns_timespec(a->mtime_ns),
		.st_ctim = ns_timespec(a->ctime_ns),
	};
}

/* EIO has many reasons, of which the program learns none. */
static void log_failed(fuse_req_t req, int status)
{
	struct leatfs *fs = req_fs(req);
	uint64_t now = loop_now_us();

	if (fs->failed_us != 0 && now - fs->failed_us < LOG_AGAIN_US)
		return;
	fs->failed_us = now;
	log_warn("a request of process %d fails: %s (%s)", (int)fuse_req_ctx(req)->pid,
		 status_text(status), status_name(status));
}

void reply_status(fuse_req_t req, int status)
{
	if (status < 0 && status != -LE_NOENT && status != -LE_NODATA)
		metric_add(&req_fs(req)->metrics.errors, 1);
	if (status_errno(status) == EIO)
		log_failed(req, status);
	fuse_reply_err(req, status_errno(status));
}

/* How long the kernel may believe what it is about to be told. */
static double attr_timeout_s(fuse_req_t req, uint64_t begun_us, struct attr *attr)
{
	struct leatfs *fs = req_fs(req);

	/* It will not hear it. */
	if (killed_is_answered(&fs->killed))
		return 0;
	/* Leases may have gone while it waited. */
	if (S_ISREG(attr->mode) &&
	    known_size_tell(fs, attr->ino, fuse_req_ctx(req)->pid, begun_us, &attr->size))
		return 0;
	return (double)ll_attr_us(fs->client, attr) / 1e6;
}

void entry_init(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr,
		struct fuse_entry_param *ret_entry)
{
	struct client *c = req_fs(req)->client;
	uint64_t name_us = at.name ? ll_name_us(c, at.dir, bytes_str(at.name), attr->ino) : 0;
	struct attr told = *attr;

	*ret_entry = (struct fuse_entry_param){
		.ino = node_of(attr->ino),
		.attr_timeout = attr_timeout_s(req, begun_us, &told),
		.entry_timeout = (double)name_us / 1e6,
	};
	attr_to_stat(&told, &ret_entry->attr);
}

static void reply_attr(fuse_req_t req, uint64_t begun_us, struct attr *attr)
{
	double timeout_s = attr_timeout_s(req, begun_us, attr);
	struct stat st;

	attr_to_stat(attr, &st);
	fuse_reply_attr(req, &st, timeout_s);
}

void reply_entry(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr)
{
	struct fuse_entry_param e;

	entry_init(req, at, begun_us, attr, &e);
	fuse_reply_entry(req, &e);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	uint64_t begun_us = known_size_begin(fs, ino_of(ino), fuse_req_ctx(req)->pid);
	struct req_cred rc;
	struct attr attr;
	int status;

	(void)fi;
	req_cred_init(req, &rc);
	status = ll_getattr(fs->client, &rc.cred, ino_of(ino), &attr);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	reply_attr(req, begun_us, &attr);
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
static struct statx_timestamp statx_time(int64_t ns)
{
	struct timespec ts = ns_timespec(ns);

	return (struct statx_timestamp){.tv_sec = ts.tv_sec, .tv_nsec = (uint32_t)ts.tv_nsec};
}

void op_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	uint64_t begun_us = known_size_begin(fs, ino_of(ino), fuse_req_ctx(req)->pid);
	struct req_cred rc;
	struct attr a;
	int status;

	(void)flags, (void)mask, (void)fi;
	req_cred_init(req, &rc);
	status = ll_getattr(fs->client, &rc.cred, ino_of(ino), &a);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	double timeout_s = attr_timeout_s(req, begun_us, &a);
	struct statx sx = {
		.stx_mask = STATX_BASIC_STATS | STATX_BTIME,
		.stx_blksize = a.layout.chunk_size ? a.layout.chunk_size : 4096,
		.stx_nlink = a.nlink,
		.stx_uid = a.uid,
		.stx_gid = a.gid,
		.stx_mode = (uint16_t)a.mode,
		.stx_ino = a.ino.v,
		.stx_size = a.size,
		.stx_blocks = a.blocks,
		.stx_atime = statx_time(a.atime_ns),
		.stx_mtime = statx_time(a.mtime_ns),
		.stx_ctime = statx_time(a.ctime_ns),
		.stx_btime = statx_time(a.btime_ns),
		.stx_rdev_major = major(a.rdev),
		.stx_rdev_minor = minor(a.rdev),
		.stx_attributes_mask = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP,
		.stx_attributes = (a.flags & ATTR_IMMUTABLE ? STATX_ATTR_IMMUTABLE : 0u) |
				  (a.flags & ATTR_APPEND ? STATX_ATTR_APPEND : 0u) |
				  (a.flags & ATTR_NODUMP ? STATX_ATTR_NODUMP : 0u),
	};
	fuse_reply_statx(req, 0, &sx, timeout_s);
}
#endif

static int64_t timespec_ns(const struct timespec *ts)
{
	int64_t ns;

	/* Years 1677 to 2262; what lies outside becomes the nearest that can be. */
	if (__builtin_mul_overflow((int64_t)ts->tv_sec, NS_PER_S, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)ts->tv_nsec, &ns))
		return ts->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

static uint32_t set_mask(int to_set)
{
	static const struct {
		int fuse;
		uint32_t leat;
	} map[] = {
		{FUSE_SET_ATTR_MODE, SET_MODE},
		{FUSE_SET_ATTR_UID, SET_UID},
		{FUSE_SET_ATTR_GID, SET_GID},
		{FUSE_SET_ATTR_SIZE, SET_SIZE},
		{FUSE_SET_ATTR_ATIME, SET_ATIME},
		{FUSE_SET_ATTR_MTIME, SET_MTIME},
		{FUSE_SET_ATTR_ATIME_NOW, SET_ATIME_NOW},
		{FUSE_SET_ATTR_MTIME_NOW, SET_MTIME_NOW},
#ifdef FUSE_SET_ATTR_KILL_SUID
		{FUSE_SET_ATTR_KILL_SUID, SET_KILL_SUID},
#endif
	};
	uint32_t mask = 0;

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (to_set & map[i].fuse)
			mask |= map[i].leat;
	/* "Now" comes with a time of the kernel's; whoever may write may set the first only. */
	if ((mask & SET_ATIME_NOW) != 0)
		mask &= ~(uint32_t)SET_ATIME;
	if ((mask & SET_MTIME_NOW) != 0)
		mask &= ~(uint32_t)SET_MTIME;
	return mask;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	uint32_t mask = set_mask(to_set);
	struct req_cred rc;
	struct attr ret;
	struct attr set = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime_ns = timespec_ns(&st->st_atim),
		.mtime_ns = timespec_ns(&st->st_mtim),
	};
	int status;

	if ((mask & SET_BY_OWNER) != 0 && (mask & SET_SIZE) == 0)
		req_cred_of_owner(req, ino, &rc);
	else
		req_cred_init(req, &rc);
	status = mask & SET_SIZE ? passthrough_may_change(fs, ino) : 0;
	if (status == 0 && (mask & SET_SIZE) && (mask & SET_KILL_SUID))
		status = drop_set_ids(req, ino);
	if (status == 0 && mask == 0)
		status = ll_getattr(fs->client, &rc.cred, ino_of(ino), &ret);
	else if (status == 0)
		status = ll_setattr(fs->client, &rc.cred, ino_of(ino),
				    fi ? file_of(req, fi)->file : NULL, mask, &set, &ret);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	reply_attr(req, 0, &ret);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[LEAT_SYMLINK_MAX + 1];
	struct req_cred rc;
	int status;

	req_cred_init(req, &rc);
	status = ll_readlink(req_fs(req)->client, &rc.cred, ino_of(ino), target, sizeof(target));
	if (status < 0)
		reply_status(req, status);
	else
		fuse_reply_readlink(req, target);
}

void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_access(req_fs(req)->client, &rc.cred, ino_of(ino), (uint32_t)mask));
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ll_statfs s;
	int status = ll_statfs(req_fs(req)->client, ino_of(ino), &s);

	if (status < 0) {
		reply_status(req, status);
		return;
	}
	/* Who asks by statfs(2) takes the blocks to be of f_bsize bytes. */
	struct statvfs v = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_blocks = s.total / 4096,
		.f_bfree = s.free / 4096,
		.f_bavail = s.avail / 4096,
		.f_files = s.inodes + s.inodes_free,
		.f_ffree = s.inodes_free,
		.f_favail = s.inodes_free,
		.f_namemax = LEAT_NAME_MAX,
	};
	fuse_reply_statfs(req, &v);
}

/* ---- extended attributes ---- */

/*
 * Whether an access list that is set takes S_ISGID away depends on the caller's groups and
 * capabilities. The kernel says so in a field that libfuse does not hand on. Without that field
 * (libfuse before 3.17, old kernels) only root keeps it. Before the first yield.
 */
static uint32_t setxattr_flags(fuse_req_t req, int flags)
{
	uint32_t ret = (uint32_t)flags;
	const struct mount_request *mr = session_request();
	struct fuse_setxattr_in in;

	if (!req_fs(req)->setxattr_ext || mr == NULL ||
	    mr->len < sizeof(struct fuse_in_header) + sizeof(in))
		return fuse_req_ctx(req)->uid != 0 ? ret | XATTR_KILL_SGID : ret;
	memcpy(&in, mr->data + sizeof(struct fuse_in_header), sizeof(in));
	return in.setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID ? ret | XATTR_KILL_SGID : ret;
}

static bool is_acl(const char *name)
{
	return strncmp(name, "system.posix_acl_", 17) == 0;
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	uint32_t set_flags = setxattr_flags(req, flags);
	struct req_cred rc;

	if (virtual_setxattr(req, ino, name, value, size))
		return;
	if (is_acl(name))
		req_cred_of_owner(req, ino, &rc);
	else
		req_cred_init(req, &rc);
	reply_status(req, ll_setxattr(req_fs(req)->client, &rc.cred, ino_of(ino), bytes_str(name),
				      bytes_of(value, (uint32_t)size), set_flags));
}

/* The answer to getxattr and listxattr: the length, or the bytes. */
static void reply_xattr(fuse_req_t req, int64_t len, const char *buf, size_t size)
{
	if (len < 0)
		reply_status(req, (int)len);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)len);
	else
		fuse_reply_buf(req, buf, (size_t)len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct req_cred rc;
	char *buf = NULL;
	int64_t len;

	if (virtual_getxattr(req, ino, name, size))
		return;
	if (size > LEAT_XATTR_VALUE_MAX)
		size = LEAT_XATTR_VALUE_MAX;
	if (size > 0) {
		buf = malloc(size);
		if (!buf) {
			reply_status(req, -LE_NOMEM);
			return;
		}
	}
	req_cred_init(req, &rc);
	len = ll_getxattr(req_fs(req)->client, &rc.cred, ino_of(ino), bytes_str(name), buf, size);
	reply_xattr(req, len, buf, size);
	free(buf);
}

/* trusted.* is for those with CAP_SYS_ADMIN; the kernel refuses the others only the values. */
static int64_t hide_trusted(fuse_req_t req, char *names, int64_t len)
{
	int64_t to = 0;
	int admin = -1;

	for (int64_t at = 0, n; at < len; at += n) {
		n = (int64_t)strnlen(names + at, (size_t)(len - at)) + 1;
		if (at + n > len)
			break;
		if (strncmp(names + at, "trusted.", 8) == 0) {
			if (admin < 0)
				admin = req_is_admin(req);
			if (!admin)
				continue;
		}
		memmove(names + to, names + at, (size_t)n);
		to += n;
	}
	return to;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct req_cred rc;
	char *buf = malloc(LIST_MAX);
	int64_t len;

	if (!buf) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	req_cred_init(req, &rc);
	len = ll_listxattr(req_fs(req)->client, &rc.cred, ino_of(ino), buf, LIST_MAX);
	if (len > 0)
		len = hide_trusted(req, buf, len);
	if (len > 0 && size > 0 && (size_t)len > size)
		len = -LE_RANGE;
	reply_xattr(req, len, buf, size);
	free(buf);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct req_cred rc;

	if (is_acl(name))
		req_cred_of_owner(req, ino, &rc);
	else
		req_cred_init(req, &rc);
	reply_status(req,
		     ll_removexattr(req_fs(req)->client, &rc.cred, ino_of(ino), bytes_str(name)));
}
