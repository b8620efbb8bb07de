/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of data sets: a directory (of the namespace: /.leat/datasets) with
 *   NAME@VERSION                            one line: the id, and a random word
 *   by-id/ID/WORD/manifest, sums, samples   the data set; folders may have the same content, made
 *                                           of different files
 *   by-id/ID/WORD/sealed                    a mark: its files can never change
 *
 * A folder may be read by its owner, and by the users that may read every file of the data set and
 * list every directory, as far as owner, group and mode show that. Every user may list the names.
 *
 * A data set is added with its folder first and its name last, and only if the name does not exist.
 * If several processes add the same name, one succeeds, and each other process removes its folder.
 * Removal removes the folder first, as a whole. Everything yields.
 */
#ifndef LEAT_CLIENT_DATASET_CATALOG_H
#define LEAT_CLIENT_DATASET_CATALOG_H

#include "client/dataset/formats/index.h"
#include "client/dataset/manifest.h"

#define CATALOG_DEFAULT "/.leat/datasets"

/* Returns the id that "name@version" stands for. -LE_NOENT: there is no such name. */
int catalog_lookup(struct vol *v, const char *catalog, const char *alias,
		   char ret_id[MANIFEST_ID_SIZE]) CHECK_RESULT;
/* Like catalog_lookup, and returns the folder of the manifest too. */
int catalog_find(struct vol *v, const char *catalog, const char *alias,
		 char ret_id[MANIFEST_ID_SIZE], char ret_dir[4096]) CHECK_RESULT;
/* Returns when the name was made, by the clock of the file system that holds the catalog, and
 * its owner. */
int catalog_made(struct vol *v, const char *catalog, const char *alias, int64_t *ret_ns,
		 uint32_t *ret_uid) CHECK_RESULT;
/* Adds a data set under the manifest's name and version. -LE_EXIST: the name exists. index may
 * be NULL. */
int catalog_add(struct vol *v, const char *catalog, const struct manifest *m,
		const struct sample_index *index) CHECK_RESULT;
/* Calls `each` with every name, "name@version". `each` may yield; non-zero ends the list and is
 * returned. */
int catalog_list(struct vol *v, const char *catalog, int (*each)(void *arg, const char *alias),
		 void *arg) CHECK_RESULT;
/* Removes a name with its folder. -LE_NOENT */
int catalog_remove(struct vol *v, const char *catalog, const char *alias) CHECK_RESULT;

/* Sets and reads the mark of a folder: all files of its manifest are sealed. */
int catalog_mark_sealed(struct vol *v, const char *dir) CHECK_RESULT;
bool catalog_is_sealed(struct vol *v, const char *dir);

/* Load and store the sample index beside a manifest. -LE_NOENT: there is none. */
int samples_load(struct vol *v, const char *dir, struct sample_index **ret_index) CHECK_RESULT;
int samples_store(struct vol *v, const char *dir, const struct sample_index *x) CHECK_RESULT;
/* Compares the checksums of the sample index of a name, in dir, and of the one beside a copy. 1:
 * they are equal; 0: they differ, or one is missing or damaged; negative: the index of the name
 * cannot be read now. */
int samples_compare(struct vol *v, const char *dir, struct vol *local,
		    const char *copy) CHECK_RESULT;
/* Records beside a copy that its samples are those of this name, so that no server is needed. */
int samples_note_name(struct vol *local, const char *copy, const char *catalog,
		      const char *alias) CHECK_RESULT;
/* Reads that record. 1: the copy has the samples of this name; 0: it had others when it was
 * staged; negative: unknown. */
int samples_named(struct vol *local, const char *copy, const char *catalog,
		  const char *alias) CHECK_RESULT;

#endif
