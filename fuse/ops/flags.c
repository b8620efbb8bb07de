/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inode flags of chattr(1) and lsattr(1). The kernel has checked permissions (only root makes a
 * file immutable or append-only). The kernel uses two forms, FS_IOC_GETFLAGS and FS_IOC_FSGETXATTR,
 * and requests the second before it sets the first.
 */
#include <errno.h>
#include <linux/fs.h>

#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/credentials.h"
#include "fuse/ops/handlers.h"
#include "fuse/ops/reply.h"

static const struct {
	uint32_t fs, xflag, attr;
} flag_map[] = {
	{FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE, ATTR_IMMUTABLE},
	{FS_APPEND_FL, FS_XFLAG_APPEND, ATTR_APPEND},
	{FS_NOATIME_FL, FS_XFLAG_NOATIME, ATTR_NOATIME},
	{FS_NODUMP_FL, FS_XFLAG_NODUMP, ATTR_NODUMP},
};

static void get_flags(fuse_req_t req, fuse_ino_t ino, bool extended)
{
	struct leatfs *fs = req_fs(req);
	struct fsxattr x = {0};
	struct req_cred rc;
	uint32_t flags = 0;
	struct attr a;
	int status;

	req_cred_init(req, &rc);
	status = ll_getattr(fs->client, &rc.cred, ino_of(fs, ino), &a);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(flag_map); i++)
		if ((a.flags & flag_map[i].attr) != 0) {
			flags |= flag_map[i].fs;
			x.fsx_xflags |= flag_map[i].xflag;
		}
	if (extended)
		fuse_reply_ioctl(req, 0, &x, sizeof(x));
	else
		fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
}

/* set: the new flags. more: the request has something else, too, which is not supported. */
static void set_flags(fuse_req_t req, fuse_ino_t ino, const struct attr *set, bool more)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	int status;

	if (more) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	req_cred_of_owner(req, ino, &rc);
	status = ll_setattr(fs->client, &rc.cred, ino_of(fs, ino), NULL, SET_FLAGS, set, NULL);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	/* The kernel has the previous change time. Dropping attributes takes no page lock
	 * (op_open). */
	kernel_size_forget_attr(fs, ino_of(fs, ino));
	fuse_reply_ioctl(req, 0, NULL, 0);
}

static void set_fs_flags(fuse_req_t req, fuse_ino_t ino, uint32_t flags)
{
	struct attr set = {.flags = 0};

	for (size_t i = 0; i < ARRAY_SIZE(flag_map); i++)
		if ((flags & flag_map[i].fs) != 0) {
			set.flags |= flag_map[i].attr;
			flags &= ~flag_map[i].fs;
		}
	set_flags(req, ino, &set, flags != 0);
}

static void set_xflags(fuse_req_t req, fuse_ino_t ino, const struct fsxattr *x)
{
	uint32_t flags = x->fsx_xflags;
	struct attr set = {.flags = 0};

	for (size_t i = 0; i < ARRAY_SIZE(flag_map); i++)
		if ((flags & flag_map[i].xflag) != 0) {
			set.flags |= flag_map[i].attr;
			flags &= ~flag_map[i].xflag;
		}
	set_flags(req, ino, &set,
		  flags != 0 || x->fsx_projid != 0 || x->fsx_extsize != 0 ||
			  x->fsx_cowextsize != 0);
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in, size_t in_size,
	      size_t out_size)
{
	struct fsxattr x;
	uint32_t value;

	(void)arg, (void)fi;
	if ((flags & FUSE_IOCTL_UNRESTRICTED) != 0) {
		fuse_reply_err(req, ENOTTY);
	} else if (cmd == (unsigned int)FS_IOC_GETFLAGS && out_size >= sizeof(value)) {
		get_flags(req, ino, false);
	} else if (cmd == (unsigned int)FS_IOC_FSGETXATTR && out_size >= sizeof(x)) {
		get_flags(req, ino, true);
	} else if (cmd == (unsigned int)FS_IOC_SETFLAGS && in_size >= sizeof(value)) {
		memcpy(&value, in, sizeof(value));
		set_fs_flags(req, ino, value);
	} else if (cmd == (unsigned int)FS_IOC_FSSETXATTR && in_size >= sizeof(x)) {
		memcpy(&x, in, sizeof(x));
		set_xflags(req, ino, &x);
	} else {
		fuse_reply_err(req, ENOTTY);
	}
}
