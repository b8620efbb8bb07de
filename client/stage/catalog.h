/*
 * The catalog of data sets: a directory (of the namespace: /.leat/datasets) with
 *   NAME@VERSION                            one line: the id, and a random word
 *   by-id/ID/WORD/manifest, sums, samples   what it is; of the same content there may be several,
 *                                           made of other files
 *   by-id/ID/WORD/sealed                    its files can never change
 * What is in a folder may be read by those who may read every file of the data set and list every
 * directory, as far as owner, group and all others tell that, and by its maker; anybody may see the
 * names.
 * The folder comes first; the name comes last, and only where there is none: of several who give it
 * one does, and it is that one's folder, the others remove theirs. What is removed loses its folder
 * first, as a whole. Everything yields.
 */
#ifndef LEAT_STAGE_CATALOG_H
#define LEAT_STAGE_CATALOG_H

#include "client/loader/index.h"
#include "client/stage/manifest.h"

#define CATALOG_DEFAULT "/.leat/datasets"

/* -LE_NOENT: there is no such name. */
int catalog_lookup(struct vol *v, const char *catalog, const char *alias,
		   char ret_id[MANIFEST_ID_SIZE]) CHECK_RESULT;
/* ... and the folder of its manifest. */
int catalog_find(struct vol *v, const char *catalog, const char *alias,
		 char ret_id[MANIFEST_ID_SIZE], char ret_dir[4096]) CHECK_RESULT;
/* Under the manifest's name and version: -LE_EXIST if there is one. index may be NULL. */
int catalog_add(struct vol *v, const char *catalog, const struct manifest *m,
		const struct sample_index *index) CHECK_RESULT;
/* Names, "name@version" each; may yield inside of each. */
int catalog_list(struct vol *v, const char *catalog, int (*each)(void *arg, const char *alias),
		 void *arg) CHECK_RESULT;
int catalog_remove(struct vol *v, const char *catalog, const char *alias) CHECK_RESULT;

/* All files of the manifest in this folder are sealed. */
int catalog_mark_sealed(struct vol *v, const char *dir) CHECK_RESULT;
bool catalog_is_sealed(struct vol *v, const char *dir);

/* The sample index beside a manifest: -LE_NOENT if there is none. */
int samples_load(struct vol *v, const char *dir, struct sample_index **ret_index) CHECK_RESULT;
int samples_store(struct vol *v, const char *dir, const struct sample_index *x) CHECK_RESULT;
/* Those of a name, in dir, and those beside a copy, told by their checksums: 1: the same; 0:
 * others, or none that are sound, here or there. Negative: the name's cannot be read now. */
int samples_compare(struct vol *v, const char *dir, struct vol *local,
		    const char *copy) CHECK_RESULT;
/* Whose samples lie beside a copy is noted there, so that no server has to be asked. */
int samples_note_name(struct vol *local, const char *copy, const char *catalog,
		      const char *alias) CHECK_RESULT;
/* 1: this name's; 0: they are not, its own were others when it was staged. Negative: not known. */
int samples_named(struct vol *local, const char *copy, const char *catalog,
		  const char *alias) CHECK_RESULT;

#endif
