/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repairs of the metadata: parts of critical sections (store/txn.h) that `leat-mds check` and
 * `leat fsck` share. Each function checks that the fault is still there. It returns 1 if it has
 * repaired the fault, 0 if there was none, -LE_MISS, or an error. None yields.
 */
#ifndef LEAT_MDS_REPAIR_H
#define LEAT_MDS_REPAIR_H

#include "mds/store/txn.h"

/* Removes the entry with that cookie of the directory, if it names that inode. */
int repair_entry(struct store *s, struct ino dir, uint64_t cookie, struct ino ino) CHECK_RESULT;

struct repair_counts {
	uint32_t nlink;
	uint64_t entries; /* of directories only, as parent */
	struct ino parent;
};
/* Sets the counts and the parent of the inode. */
int repair_counts(struct store *s, struct ino ino, const struct repair_counts *c) CHECK_RESULT;

/* Finds /lost+found, or makes it. */
int repair_lost_found(struct store *s, struct ino *ret_dir) CHECK_RESULT;
/* Gives an inode without a name the name "ino.NUMBER" in that directory, and nlink links. */
int repair_name(struct store *s, struct ino ino, struct ino lost_found,
		uint32_t nlink) CHECK_RESULT;
/* Makes an inode without links an orphan, so that it is removed. */
int repair_orphan(struct store *s, struct ino ino) CHECK_RESULT;
/* Deletes the orphan row of an inode that is no orphan. */
int repair_false_orphan(struct store *s, struct ino ino) CHECK_RESULT;

#endif
