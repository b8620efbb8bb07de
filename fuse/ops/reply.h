/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies that several operations send: a status, attributes, a directory entry. Each limits how
 * long the kernel may cache the contents: as long as there are leases.
 */
#ifndef LEAT_FUSE_OPS_REPLY_H
#define LEAT_FUSE_OPS_REPLY_H

#include "fuse/mount.h"

/* Where an inode was found. name NULL: not by a name, so the kernel caches no name. */
struct place {
	struct ino dir;
	const char *name;
};

/* The inode number that programs see. Does not yield. */
uint64_t visible_ino(const struct leatfs *fs, struct ino ino);
/* Nanoseconds since 1970 as seconds and the rest, which is never negative. */
struct timespec ns_timespec(int64_t ns);

/* Answers req with the errno of a status; 0: done. Counts errors except -LE_NOENT and -LE_NODATA,
 * and logs what becomes EIO, at most once a second. Does not yield. */
void reply_status(fuse_req_t req, int status);

/* Returns for how many seconds the kernel may cache the attributes of the next reply. May lower
 * attr->size, and waits, as kernel_size_notify does. begun_us: of kernel_size_begin, or 0.
 * Yields. */
double attr_timeout_s(fuse_req_t req, uint64_t begun_us, struct attr *attr);
/* Answers req with attributes (GETATTR, SETATTR). Yields as attr_timeout_s does. */
void reply_attr(fuse_req_t req, uint64_t begun_us, struct attr *attr);
/* Fills in a directory entry for the kernel. Yields as attr_timeout_s does. */
void entry_init(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr,
		struct fuse_entry_param *ret_entry);
/* Answers req with a directory entry. Yields as attr_timeout_s does. */
void reply_entry(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr);

#endif
