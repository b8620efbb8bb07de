/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas of directory trees. A project is the tree below one directory, its root. Each inode
 * belongs to the project of the directory in which it was created (attr.project, 0: none). The
 * usage of a project is counted when a batch is encoded, from the record of each changed inode
 * before and after: whatever an operation did, the counts change in the same atomic batch.
 *
 *   inodes   all that exist, also without a name
 *   bytes    st_blocks, as du counts it, which is known when a file is settled, after its last
 *            writer has closed it. Growth is reserved before it is written (mds_space). Also the
 *            extended attributes and access lists (quota_attrs), which du does not count.
 *
 * Owned by the store's loop. All quotas are in memory while the server runs.
 */
#ifndef LEAT_MDS_STORE_QUOTA_H
#define LEAT_MDS_STORE_QUOTA_H

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "mds/store/records.h"

struct store;
struct kv_batch;

struct quota {
	struct hmap_node node;
	struct list changed; /* link in quotas.changed */
	uint32_t project;
	bool used_changed;     /* the record has to be written */
	bool to_repair;        /* used by check.c */
	struct quota_rec rec;  /* as of the last encoded batch */
	uint64_t ahead_inodes; /* created in the open batch */
	uint64_t ahead_bytes;  /* used by attributes and directories in the open batch */
	uint64_t reserved;     /* bytes that open files have reserved */
};

struct quotas {
	struct hmap map;
	struct list changed; /* quotas to encode with the next batch */
	int64_t grace_ns;    /* how long a soft limit may be exceeded */
};

void quotas_init(struct quotas *qs);
void quotas_fini(struct quotas *qs);
/* Reads all quotas. Returns 0, -LE_NOMEM, -LE_CORRUPT_STORE or the error of the store. Yields. */
int quotas_load(struct store *s) CHECK_RESULT;
struct quota *quota_find(struct store *s, uint32_t project); /* NULL: none */
/* Creates a quota with the next number. Returns NULL without memory. Joins the open batch. */
struct quota *quota_create(struct store *s, struct ino root);
/* Notes that limits or root of the quota have changed. Joins the open batch. */
void quota_changed(struct store *s, struct quota *q);
/* Clears limits and root. The row is deleted when the last inode has left the project. Joins the
 * open batch. */
void quota_end(struct store *s, struct quota *q);

/* Checks that the project may grow by that much. Returns 0 (also for project 0 and without limits)
 * or -LE_DQUOT. Does not yield. */
int quota_check(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes) CHECK_RESULT;
/* Counts that growth, which quota_check has allowed, for the open batch. */
void quota_ahead(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes);
/* The bytes that the attributes of an inode count for: names and values of extended attributes,
 * access lists, and the target of a symbolic link, rounded up to sectors. */
uint64_t quota_attrs(const struct inode_rec *rec);
/* The bytes that an inode counts for. */
uint64_t quota_bytes(const struct inode_rec *rec);
/* The bytes by which the project may still grow (UINT64_MAX: any number). */
uint64_t quota_bytes_left(struct store *s, const struct quota *q);

/* For the committer. quota_count: the record of an inode changes from before to after (attr.mode 0:
 * none). quotas_encode: adds all changed quotas to the batch. */
void quota_count(struct store *s, const struct inode_rec *before, const struct inode_rec *after);
void quotas_encode(struct store *s, struct kv_batch *kv);

#endif
