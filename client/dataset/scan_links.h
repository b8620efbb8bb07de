/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the symbolic links of a tree become: see scan.h.
 *
 * First each link is followed through the entries that the walk has found, without a system call:
 * by relative links, never above the tree. A link that leads to an entry stays a link. Each other
 * link is resolved by the volume, and the file is then opened from the root of the volume by a path
 * without links; a regular file takes the place of the link.
 */
#ifndef LEAT_CLIENT_DATASET_SCAN_LINKS_H
#define LEAT_CLIENT_DATASET_SCAN_LINKS_H

#include "client/dataset/scan_list.h"

/* Settles s->links: links within the tree stay, others become files or are left out. The arrays
 * are sorted before and after. dev: of the tree's directory. Yields. */
int scan_settle_links(struct scan *s, uint64_t dev) CHECK_RESULT;
/* Returns the rights of a file outside of a tree for users that reach it through a link of the
 * tree: its own rights, and those to search the directories that lead to it and not to the tree.
 * Both paths as vol_real_path returns them; st: of the file. Yields. */
int scan_rights_of_other(struct vol *top, const char *tree, const char *path,
			 const struct vol_stat *st, struct acl_pool *pool,
			 struct rights *ret_rights) CHECK_RESULT;

#endif
