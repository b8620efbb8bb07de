/*
 * Repairs of the metadata: critical sections (store/txn.h) that leat-mds check and leat fsck share.
 * Each checks that what it is to mend is there; -LE_MISS as usual. 1: it was mended, 0: there was
 * nothing to mend.
 */
#ifndef LEAT_MDS_REPAIR_H
#define LEAT_MDS_REPAIR_H

#include "mds/store/txn.h"

/* Removes the entry, if it names that inode. */
int repair_entry(struct store *s, struct ino dir, uint64_t cookie, struct ino ino) CHECK_RESULT;

struct repair_counts {
	uint32_t nlink;
	uint64_t entries; /* these of directories only */
	struct ino parent;
};
int repair_counts(struct store *s, struct ino ino, const struct repair_counts *c) CHECK_RESULT;

/* /lost+found, which is made if need be. */
int repair_lost_found(struct store *s, struct ino *ret_dir) CHECK_RESULT;
/* An inode without a name gets one in that directory: "ino.NUMBER", and nlink links. */
int repair_name(struct store *s, struct ino ino, struct ino lost_found,
		uint32_t nlink) CHECK_RESULT;
/* It has no links and shall be removed; it is no such inode. */
int repair_orphan(struct store *s, struct ino ino) CHECK_RESULT;
int repair_false_orphan(struct store *s, struct ino ino) CHECK_RESULT;

#endif
