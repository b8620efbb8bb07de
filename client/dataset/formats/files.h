/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain files, one sample each: field "data" is the whole file, the key is its path. The first
 * folder of the path is the class ("cat/1.png"). Classes are numbered in the order of their names'
 * bytes, like torchvision's ImageFolder. A sample's label is its class, or -1 for a file in no
 * folder.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_FILES_H
#define LEAT_CLIENT_DATASET_FORMATS_FILES_H

#include "client/dataset/formats/index.h"

struct files_entry {
	const char *path;
	uint64_t size;
};

/* Adds files and their samples. Entries are sorted by the bytes of their path. */
int files_index(struct index_builder *b, const struct files_entry *entries,
		uint32_t n) CHECK_RESULT;

#endif
