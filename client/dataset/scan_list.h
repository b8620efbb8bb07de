/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a scan: files, directories, links, and counts of what was left out. */
#ifndef LEAT_CLIENT_DATASET_SCAN_LIST_H
#define LEAT_CLIENT_DATASET_SCAN_LIST_H

#include "client/dataset/vol.h"

struct scan_file {
	char *path; /* below the directory, no leading slash */
	char *from; /* its real path, if a link named it; NULL: at its path */
	struct vol_stat st;
	struct rights rights; /* the scan owns its access list */
};
struct scan_dir {
	char *path; /* "": the directory itself */
	struct vol_stat st;
	struct rights rights;
};
struct scan_link {
	char *path, *target;
	struct vol_stat st;
};

/* Why an entry is left out: a symbolic link, or neither file, directory nor link. */
enum left_why {
	LEFT_DANGLING,  /* names nothing, or an entry that is left out */
	LEFT_DIRECTORY, /* names a directory outside of the tree */
	LEFT_OUTSIDE,   /* names a file on another file system, or no regular file */
	LEFT_LOOP,      /* leads back to itself */
	LEFT_DENIED,    /* access to what it names is denied */
	LEFT_DEVICE,
	LEFT_SOCKET,
	LEFT_PIPE,
	LEFT_MEMBER, /* a member of an archive that is neither file nor hard link */
	LEFT_KINDS
};
#define LEFT_NAMES 3u
struct left_out {
	uint64_t n;
	char *names[LEFT_NAMES]; /* the first names, then NULL */
};

struct scan {
	struct scan_file *files; /* regular files, sorted by the bytes of path */
	struct scan_dir *dirs;   /* sorted likewise */
	struct scan_link *links; /* sorted likewise: those that stay links */
	uint32_t n, cap, n_dirs, cap_dirs, n_links, cap_links;
	struct left_out left[LEFT_KINDS];
	uint64_t bytes, n_hard_links; /* files that have other names too */
	struct acl_pool acls;
	bool within; /* links are not followed out of the tree */
	/* Real path of the directory, and vol_beneath volumes of it and of the volume's root.
	 * NULL: the scan is not of a tree. */
	char *real;
	struct vol *in, *top;
};
#define SCAN_FILES_MAX (1u << 26)

/* Adds a file and takes over its strings. -LE_NOMEM */
int scan_add_file(struct scan *s, const struct scan_file *f) CHECK_RESULT;
/* Adds a directory, with a copy of its path. -LE_NOMEM */
int scan_add_dir(struct scan *s, const struct scan_dir *dir) CHECK_RESULT;
/* Adds a link and takes over its strings. -LE_NOMEM */
int scan_add_link(struct scan *s, const struct scan_link *link) CHECK_RESULT;
/* Counts an entry that is left out, and stores its name if it is one of the first. -LE_NOMEM */
int scan_leave_out(struct scan *s, enum left_why why, const char *path) CHECK_RESULT;
/* Sorts the directories and removes duplicate paths. If duplicates have different rights, the
 * directory becomes private to root. */
void scan_sort_dirs(struct scan *s);
/* Returns the path and the volume to read file f from. -LE_NAMETOOLONG */
int scan_source_path(const struct scan *s, const struct scan_file *f, struct vol **ret_vol,
		     char ret_path[4096]) CHECK_RESULT;
/* Frees the scan and its volumes. Yields. */
void scan_fini(struct scan *s);

#endif
