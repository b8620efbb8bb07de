/*
 * Of which format a set of files is, and which of them are its data set.
 *
 * Files are sorted by kind: the end of the name behind its last period, in lower case. Of each kind
 * up to CHOOSE_LOOKS files, spread evenly, are looked into (sniff.h), and stand for all of the
 * kind. The format of most bytes is the data set's. A single file never outvotes many: it is passed
 * over where there are CHOOSE_MANY files of another format, or plain ones of one kind.
 *
 * Names with a component that begins with a period are hidden: they are left out, unless there is
 * nothing else. Of plain files each other one is a sample; but beside folders (classes) files of
 * kinds that do not occur in the folders are left out. Of the other formats those are left out that
 * are not of the format. A kind that is mostly of the format must be: one that is not is damaged,
 * and an error that names it. All that is left out is told to the index by kind, reason and number.
 */
#ifndef LEAT_LOADER_CHOOSE_H
#define LEAT_LOADER_CHOOSE_H

#include "client/loader/build.h"
#include "client/loader/formats/format.h"

#define CHOOSE_LOOKS 32u /* files of a kind that are looked into */
#define CHOOSE_MANY  8u
#define CHOOSE_KINDS 128u /* those beyond are one */

struct survey;

struct candidate {
	uint32_t entry;
	bool must; /* else it is left out if it is not of the format */
};

/* Looks at the files. from stays the caller's as long as the survey. Yields. On failure d names the
 * file. */
int survey_create(struct vol *v, const char *dir, const struct index_source *from,
		  struct survey **ret_survey, struct detail *d) CHECK_RESULT;
void survey_destroy(struct survey *s); /* NULL is fine */
/* The format of from->format, or of most bytes. -LE_INVAL, said in d. */
int survey_format(const struct survey *s, const struct format **ret_format,
		  struct format_options *ret_options, struct detail *d) CHECK_RESULT;
/* The files that are to be read as that format, in their order; room for all in ret_files. Of those
 * that are not, b is told. -LE_NOENT if there are none: d says what there is instead. */
int survey_files(const struct survey *s, const struct format *f, struct index_builder *b,
		 struct candidate *ret_files, uint32_t *ret_n, struct detail *d) CHECK_RESULT;
/* Tells b that this file is left out. */
void survey_leave(const struct survey *s, struct index_builder *b, uint32_t entry,
		  enum index_left_why why);

#endif
