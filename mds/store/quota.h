/*
 * Quotas of directory trees. Every inode belongs to one project (attr.project, 0: none), the one of
 * the directory in which it was made; a project is the tree below one directory, its root. What a
 * project uses is counted when a batch is encoded, from each changed inode's record before and
 * after: whatever an operation did, the counts change in the same atomic batch with it.
 *
 *   inodes   those that exist, also without a name
 *   bytes    what st_blocks says, as du counts: known when a file is settled, after its last
 *            writer has closed it. What it grows by is reserved before it is written (mds_space).
 *            And its extended attributes and access lists (quota_attrs), which du does not see.
 *
 * Owned by the store's loop; all of them are in memory, and stay while it runs.
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
	struct list changed; /* of quotas.changed */
	uint32_t project;
	bool used_changed;     /* the record has to be written */
	bool to_repair;        /* check.c's */
	struct quota_rec rec;  /* with all batches but the open one */
	uint64_t ahead_inodes; /* made in the open batch */
	uint64_t ahead_bytes;  /* of attributes and directories: taken in the open batch */
	uint64_t reserved;     /* bytes, for open files */
};

struct quotas {
	struct hmap map;
	struct list changed; /* since the last batch was encoded */
	int64_t grace_ns;    /* how long a soft limit may be exceeded */
};

void quotas_init(struct quotas *qs);
void quotas_fini(struct quotas *qs);
/* Yields. */
int quotas_load(struct store *s) CHECK_RESULT;
struct quota *quota_find(struct store *s, uint32_t project); /* NULL: none */
/* A new one, with the next number. NULL without memory. Writes. */
struct quota *quota_create(struct store *s, struct ino root);
/* Its limits or root were changed. Writes. */
void quota_changed(struct store *s, struct quota *q);
/* No limits and no root any more: its row goes when nothing belongs to it. Writes. */
void quota_end(struct store *s, struct quota *q);

/* May the project have so much more? -LE_DQUOT. project 0, or one without limits, may. */
int quota_check(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes) CHECK_RESULT;
/* So much more in the open batch: what quota_check has allowed. */
void quota_ahead(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes);
/* How many bytes an inode's attributes and access lists count, names and values, and what a
 * symbolic link says: whole sectors. */
uint64_t quota_attrs(const struct inode_rec *rec);
/* How many bytes an inode counts. */
uint64_t quota_bytes(const struct inode_rec *rec);
/* How many bytes it may still have (UINT64_MAX: any number). */
uint64_t quota_bytes_left(struct store *s, const struct quota *q);

/* The committer's: an inode's record becomes another (attr.mode 0: there is none). */
void quota_count(struct store *s, const struct inode_rec *before, const struct inode_rec *after);
void quotas_encode(struct store *s, struct kv_batch *kv);

#endif
