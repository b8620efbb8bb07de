/* What the two files of copying share. */
#ifndef LEAT_TREE_COPY_H
#define LEAT_TREE_COPY_H

#include "client/tree/tree.h"
#include "common/base/hmap.h"

struct copying {
	const struct tree_copy *c;
	char to_name[LEAT_NAME_MAX + 1]; /* of the root */
	bool same;                       /* both sides are one file system, as far as is known */
	uint64_t to_ino, to_dev;         /* of the root, if it is a directory */
	struct tdir *top;                /* in which the root is made */
	struct hmap links;
};

#define TEMP_NAME_MAX (LEAT_NAME_MAX + 1)
/* Another name in the same directory, for what is not whole yet. */
void copy_temp_name(const char *name, char buf[TEMP_NAME_MAX]);
/* Nothing is at name, or what is there is to be replaced: 0; 1: it is to stay; or why that cannot
 * be. */
int copy_may_replace(const struct copying *cp, struct tdir *d, const char *name,
		     const struct tattr *a) CHECK_RESULT;
/* What was made at temp gets its name. 1: something has come there meanwhile that is to stay. */
int copy_rename(const struct copying *cp, struct tdir *d, const char *temp,
		const char *name) CHECK_RESULT;

/* A regular file; ret_ino: of what was made, for links (Leat). 1: nothing was to be done. */
int copy_file(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name,
	      uint64_t *ret_ino) CHECK_RESULT;

#endif
