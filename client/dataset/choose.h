/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which format a set of files has, and which of the files belong to the data set.
 *
 * Files are grouped by kind: the end of the name after its last period, in lower case. Up to
 * CHOOSE_LOOKS files of each kind, spread evenly, are inspected (sniff.h) and represent the kind.
 * The format with the most bytes is chosen. A single file never outvotes many: it is ignored if
 * there are CHOOSE_MANY files of another format, or plain files of one kind.
 *
 * Names with a component that begins with a period are hidden: they are left out, unless all are
 * hidden. All other plain files are samples, with one exception: if folders are classes (no kind of
 * file is both in folders and beside them, and most files are in folders), the files beside them
 * are left out. For other formats, files of another format are left out. But if at least half of
 * the inspected files of a kind are of the format, all files of the kind must be: one that is not
 * is damaged, which is an error that names it. The index records what is left out by kind, reason
 * and number.
 */
#ifndef LEAT_CLIENT_DATASET_CHOOSE_H
#define LEAT_CLIENT_DATASET_CHOOSE_H

#include "client/dataset/formats/format.h"
#include "client/dataset/index_build.h"

#define CHOOSE_LOOKS 32u /* files of a kind that are inspected */
#define CHOOSE_MANY  8u
#define CHOOSE_KINDS 128u /* further kinds share the last */

struct survey;

struct candidate {
	uint32_t entry;
	bool must; /* true: another format is an error; false: the file is then left out */
};

/* Inspects the files. Borrows `from` as long as the survey. On failure d names the file. Yields. */
int survey_create(struct vol *v, const char *dir, const struct index_source *from,
		  struct survey **ret_survey, struct detail *d) CHECK_RESULT;
void survey_destroy(struct survey *s); /* NULL is fine */
/* Returns the format that from->format names, or the one with the most bytes. -LE_INVAL, with d. */
int survey_format(const struct survey *s, const struct format **ret_format,
		  struct format_options *ret_options, struct detail *d) CHECK_RESULT;
/* Returns the files to be read as that format, in order; ret_files has space for all. Records
 * the others in b as left out. -LE_NOENT: there are none; d lists the kinds that exist. */
int survey_files(const struct survey *s, const struct format *f, struct index_builder *b,
		 struct candidate *ret_files, uint32_t *ret_n, struct detail *d) CHECK_RESULT;
/* Records in b that this file is left out. */
void survey_leave(const struct survey *s, struct index_builder *b, uint32_t entry,
		  enum index_left_why why);

#endif
