/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a tree, one directory after the other. The attributes of the files of a directory are read
 * concurrently.
 *
 * A symbolic link stays a link if each step from it is a relative link, stays below dir and leads
 * to an entry of the tree. Otherwise, if it names a regular file of the same file system, the file
 * takes the place of the link. Only users that may read the file at its real path may read it then:
 * by the file's rights, and those to search the directories that lead only there. All other links
 * are left out and reported.
 *
 * No entry is found through a link, so a directory that another program replaces by a link is an
 * error, and never leads to another tree.
 *
 * Leat's files are no part of a tree: the name ".leat" in dir itself, and names ".leat-out-" with
 * 16 hexadecimal digits. The walk is bounded: paths of 4095 bytes, SCAN_FILES_MAX files,
 * directories and links.
 */
#ifndef LEAT_CLIENT_DATASET_SCAN_H
#define LEAT_CLIENT_DATASET_SCAN_H

#include "client/dataset/scan_list.h"

/* Finds all entries below dir; scan_fini frees the result. On failure there is nothing to free,
 * and d has the reason. Yields. */
int scan_tree(struct vol *v, const char *dir, struct scan *ret_scan, struct detail *d) CHECK_RESULT;
/* Like scan_tree, but leaves out all links that lead out of the tree. */
int scan_tree_within(struct vol *v, const char *dir, struct scan *ret_scan,
		     struct detail *d) CHECK_RESULT;

#endif
