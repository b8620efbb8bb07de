/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/reply.h"

#include <errno.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "fuse/kernel/ino32.h"
#include "fuse/kernel/kernel_pages.h"

#define LOG_AGAIN_US 1000000u
#define NS_PER_S     1000000000ll

struct timespec ns_timespec(int64_t ns)
{
	int64_t rest = ns % NS_PER_S;

	return (struct timespec){.tv_sec = ns / NS_PER_S - (rest < 0),
				 .tv_nsec = rest < 0 ? rest + NS_PER_S : rest};
}

uint64_t visible_ino(const struct leatfs *fs, struct ino ino)
{
	return fs->ino32 ? ino32_fold(ino.v) : ino.v;
}

static void attr_to_stat(const struct leatfs *fs, const struct attr *a, struct stat *ret_st)
{
	*ret_st = (struct stat){
		.st_ino = visible_ino(fs, a->ino),
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

/* Logs the cause, since the program gets the same EIO for many. */
static void log_failed(fuse_req_t req, int status)
{
	struct leatfs *fs = req_fs(req);
	uint64_t now = loop_now_us();

	if (fs->failed_us != 0 && now - fs->failed_us < LOG_AGAIN_US)
		return;
	fs->failed_us = now;
	log_warn("a request of process %d fails with EIO: %s (%s)", (int)fuse_req_ctx(req)->pid,
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

double attr_timeout_s(fuse_req_t req, uint64_t begun_us, struct attr *attr)
{
	struct leatfs *fs = req_fs(req);

	/* The kernel has its reply already, and discards this one. */
	if (interrupt_already_replied(&fs->interrupts))
		return 0;
	/* Leases may have been recalled during the wait. */
	if (S_ISREG(attr->mode) &&
	    kernel_size_notify(fs, attr->ino, fuse_req_ctx(req)->pid, begun_us, &attr->size))
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
		.ino = node_of(req_fs(req), attr->ino),
		.attr_timeout = attr_timeout_s(req, begun_us, &told),
		.entry_timeout = (double)name_us / 1e6,
	};
	attr_to_stat(req_fs(req), &told, &ret_entry->attr);
}

void reply_attr(fuse_req_t req, uint64_t begun_us, struct attr *attr)
{
	double timeout_s = attr_timeout_s(req, begun_us, attr);
	struct stat st;

	attr_to_stat(req_fs(req), attr, &st);
	fuse_reply_attr(req, &st, timeout_s);
}

void reply_entry(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr)
{
	struct fuse_entry_param e;

	entry_init(req, at, begun_us, attr, &e);
	fuse_reply_entry(req, &e);
}
