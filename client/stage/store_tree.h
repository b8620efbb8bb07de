/* What a copy holds besides files: directories, empty ones too, and symbolic links. */
#ifndef LEAT_STAGE_STORE_TREE_H
#define LEAT_STAGE_STORE_TREE_H

#include "client/stage/detail.h"
#include "client/stage/local_store.h"
#include "client/stage/manifest.h"

/* Makes those of m that are missing, puts other links right, and gives directories and links their
 * times, links their owners, too. After the files, whose names change the directories' times. A
 * directory that it makes is the maker's alone until it gets its rights. Names that it makes are
 * durable. -LE_EXIST: something else has such a name. Yields. */
int store_tree_make(struct local_store *s, const struct manifest *m,
		    struct detail *d) CHECK_RESULT;
/* They are there, and links say what they should. Yields. */
bool store_tree_is_whole(struct local_store *s, const struct manifest *m);

#endif
