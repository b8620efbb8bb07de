/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on attributes, extended attributes, symbolic links and statfs. */
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "common/proto/mds_proto.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/ops/credentials.h"
#include "fuse/ops/handlers.h"
#include "fuse/ops/reply.h"
#include "fuse/ops/virtual_xattr.h"
#include "fuse/restart/handle_table.h"

#define NS_PER_S     1000000000ll
#define LIST_MAX     65536u /* of listxattr(2) */
/* What only the owner may set. */
#define SET_BY_OWNER (SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME)

/* Loads the attributes for a request. Returns when that began, or 0 after replying an error. */
static uint64_t load_attr(fuse_req_t req, fuse_ino_t ino, struct attr *ret_attr)
{
	struct leatfs *fs = req_fs(req);
	uint64_t begun_us = kernel_size_begin(fs, ino_of(fs, ino), fuse_req_ctx(req)->pid);
	struct req_cred rc;
	int status;

	req_cred_init(req, &rc);
	status = ll_getattr(fs->client, &rc.cred, ino_of(fs, ino), ret_attr);
	if (status < 0)
		reply_status(req, status);
	return status < 0 ? 0 : begun_us;
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct attr attr;
	uint64_t begun_us = load_attr(req, ino, &attr);

	(void)fi;
	if (begun_us != 0)
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
	struct attr a;
	uint64_t begun_us = load_attr(req, ino, &a);

	(void)flags, (void)mask, (void)fi;
	if (begun_us == 0)
		return;
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

	/* Times outside of the years 1677 to 2262 become the nearest that can be stored. */
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
	/* The kernel sends "now" together with its time. With write access alone a user may set
	 * "now" only. */
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
		status = ll_getattr(fs->client, &rc.cred, ino_of(fs, ino), &ret);
	else if (status == 0)
		status = ll_setattr(fs->client, &rc.cred, ino_of(fs, ino),
				    fi ? file_of(req, fi)->file : NULL, mask, &set, &ret);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	reply_attr(req, 0, &ret);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct leatfs *fs = req_fs(req);
	char target[LEAT_SYMLINK_MAX + 1];
	struct req_cred rc;
	int status;

	req_cred_init(req, &rc);
	status = ll_readlink(fs->client, &rc.cred, ino_of(fs, ino), target, sizeof(target));
	if (status < 0)
		reply_status(req, status);
	else
		fuse_reply_readlink(req, target);
}

void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;

	req_cred_init(req, &rc);
	reply_status(req, ll_access(fs->client, &rc.cred, ino_of(fs, ino), (uint32_t)mask));
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct leatfs *fs = req_fs(req);
	struct ll_statfs s;
	int status = ll_statfs(fs->client, ino_of(fs, ino), &s);

	if (status < 0) {
		reply_status(req, status);
		return;
	}
	/* Callers of statfs(2) take the blocks to be of f_bsize bytes. */
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
 * Adds XATTR_KILL_SGID if the access list that is set removes S_ISGID. That depends on the caller's
 * groups and capabilities: the kernel reports it in a field that libfuse does not pass on. Without
 * that field (libfuse before 3.17, old kernels) only root keeps the bit. Call it before the first
 * yield.
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
	struct leatfs *fs = req_fs(req);
	uint32_t set_flags = setxattr_flags(req, flags);
	struct req_cred rc;

	if (virtual_xattr_set(req, ino, name, value, size))
		return;
	if (is_acl(name))
		req_cred_of_owner(req, ino, &rc);
	else
		req_cred_init(req, &rc);
	reply_status(req, ll_setxattr(fs->client, &rc.cred, ino_of(fs, ino), bytes_str(name),
				      bytes_of(value, (uint32_t)size), set_flags));
}

/* Replies to getxattr or listxattr: the length, or the bytes. */
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
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	char *buf = NULL;
	int64_t len;

	if (virtual_xattr_get(req, ino, name, size))
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
	len = ll_getxattr(fs->client, &rc.cred, ino_of(fs, ino), bytes_str(name), buf, size);
	reply_xattr(req, len, buf, size);
	free(buf);
}

/* Removes the names trusted.*, unless the caller has CAP_SYS_ADMIN: the kernel refuses others the
 * values, but not the names. Returns the new length. */
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
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	char *buf = malloc(LIST_MAX);
	int64_t len;

	if (!buf) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	req_cred_init(req, &rc);
	len = ll_listxattr(fs->client, &rc.cred, ino_of(fs, ino), buf, LIST_MAX);
	if (len > 0)
		len = hide_trusted(req, buf, len);
	if (len > 0 && size > 0 && (size_t)len > size)
		len = -LE_RANGE;
	reply_xattr(req, len, buf, size);
	free(buf);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;

	if (is_acl(name))
		req_cred_of_owner(req, ino, &rc);
	else
		req_cred_init(req, &rc);
	reply_status(req, ll_removexattr(fs->client, &rc.cred, ino_of(fs, ino), bytes_str(name)));
}
