/* SPDX-License-Identifier: Apache-2.0 */
/* What a copy holds besides files: directories, empty ones too, and symbolic links. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_TREE_H
#define LEAT_CLIENT_STAGE_STORE_STORE_TREE_H

#include "client/dataset/error_detail.h"
#include "client/dataset/manifest.h"
#include "client/stage/store/local_store.h"

/* Makes the directories and links of m that are missing, corrects links, and sets the times of
 * both and the owners of links. Call it after the files have their names, which change the
 * directories' times. Only the maker has access to a new directory until it gets its rights. New
 * names are durable. -LE_EXIST: something else has such a name. Yields. */
int store_tree_make(struct local_store *s, const struct manifest *m,
		    struct detail *d) CHECK_RESULT;
/* Returns whether all directories and links of m exist, and the links are right. Yields. */
bool store_tree_is_whole(struct local_store *s, const struct manifest *m);

#endif
