/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/choose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format_table.h"
#include "client/dataset/formats/sniff.h"
#include "common/rt/fiber.h"

#define LOOKS_AT_ONCE 16u
#define KIND_LEN      15u
#define OTHER_KINDS   (CHOOSE_KINDS - 1)

struct kind {
	char name[KIND_LEN + 1]; /* "jpg"; "": no useful end */
	uint32_t n, n_folder;    /* n_folder: files in a folder */
	uint64_t bytes;
	/* Of the files that were inspected. */
	uint32_t n_looked, n_of[INDEX_FORMATS];
	uint64_t looked, bytes_of[INDEX_FORMATS];
};

struct survey {
	const struct index_source *from;
	struct vol *v;
	const char *dir;
	struct detail *d;
	uint8_t *kind_of; /* of each entry */
	bool *hidden;
	struct kind kinds[CHOOSE_KINDS];
	uint32_t n_kinds, n_seen;
	uint32_t *looks, n_looks, next_look;
	int rc;
};

/* ---- kinds ---- */

/* Returns the length without "-00001-of-01024" at the end. */
static size_t without_number(const char *base)
{
	size_t len = strlen(base), at = len;
	while (at > 0 && isdigit((unsigned char)base[at - 1]))
		at--;
	if (at == len || at < 4 || memcmp(base + at - 4, "-of-", 4) != 0)
		return len;
	size_t stop = at - 4;
	at = stop;
	while (at > 0 && isdigit((unsigned char)base[at - 1]))
		at--;
	return at < stop && at > 0 && base[at - 1] == '-' ? at - 1 : len;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void name_kind(const char *path, char ret_name[KIND_LEN + 1])
{
	const char *base = base_of(path);
	size_t len = without_number(base), at = len;
	bool letters = false, fine = true;
	while (at > 0 && base[at - 1] != '.')
		at--;
	ret_name[0] = 0;
	if (at <= 1 || len - at > KIND_LEN) {
		if (base[len])
			snprintf(ret_name, KIND_LEN + 1, "-of-");
		return;
	}
	for (size_t i = at; i < len; i++) {
		unsigned char c = (unsigned char)base[i];
		letters |= isalpha(c) != 0;
		fine &= isalnum(c) || c == '_' || c == '-' || c == '+';
		ret_name[i - at] = (char)tolower(c);
	}
	ret_name[letters && fine ? len - at : 0] = 0;
}

static uint8_t number_of_kind(struct survey *s, const char *path, uint8_t last)
{
	char name[KIND_LEN + 1];
	name_kind(path, name);
	if (last < s->n_kinds && strcmp(s->kinds[last].name, name) == 0)
		return last;
	for (uint32_t k = 0; k < s->n_kinds; k++) {
		if (strcmp(s->kinds[k].name, name) == 0)
			return (uint8_t)k;
	}
	if (s->n_kinds == OTHER_KINDS) /* the rest shares one kind without a name */
		return OTHER_KINDS;
	memcpy(s->kinds[s->n_kinds].name, name, sizeof(name));
	return (uint8_t)s->n_kinds++;
}

static bool is_hidden(const char *path)
{
	return path[0] == '.' || strstr(path, "/.") != NULL;
}

static void sort_by_kind(struct survey *s)
{
	const struct files_entry *e = s->from->entries;
	uint32_t n = s->from->n;
	for (uint32_t i = 0; i < n; i++) {
		s->hidden[i] = is_hidden(e[i].path);
		s->n_seen += !s->hidden[i];
	}
	if (s->n_seen == 0) { /* only hidden files: use them */
		memset(s->hidden, 0, n * sizeof(*s->hidden));
		s->n_seen = n;
	}
	for (uint32_t i = 0; i < n; i++) {
		s->kind_of[i] = number_of_kind(s, e[i].path, i ? s->kind_of[i - 1] : 0);
		if (s->hidden[i])
			continue;
		struct kind *k = &s->kinds[s->kind_of[i]];
		k->n++;
		k->n_folder += strchr(e[i].path, '/') != NULL;
		k->bytes += e[i].size;
	}
}

/* ---- inspecting files ---- */

static int64_t read_file(void *arg, void *buf, size_t len, uint64_t off)
{
	return vol_pread(arg, buf, len, off);
}

static int look_into(struct survey *s, const struct files_entry *e, struct sniffed *ret)
{
	char path[4096];
	struct vol_file *f;
	if (e->size == 0) {
		*ret = sniff_name(e->path);
		return 0;
	}
	if (snprintf(path, sizeof(path), "%s/%s", s->dir, e->path) >= (int)sizeof(path))
		return detail_set(s->d, -LE_NAMETOOLONG, e->path, UINT64_MAX,
				  "its path is too long: give it a shorter name");
	int rc = vol_open(s->v, path, &f);
	/* If the file is needed, opening it later reports the failure. */
	if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_NOENT) {
		*ret = sniff_name(e->path);
		return 0;
	}
	if (rc == 0) {
		struct format_input in = {read_file, f, e->size, e->path};
		rc = sniff(&in, ret);
		vol_close(f);
	}
	return rc < 0 ? detail_set(s->d, rc, path, UINT64_MAX, "cannot read its first bytes: %s",
				   status_text(rc))
		      : 0;
}

static void look_into_some(void *arg)
{
	struct survey *s = *(struct survey **)arg;
	while (s->next_look < s->n_looks && s->rc == 0) {
		uint32_t i = s->looks[s->next_look++];
		struct sniffed what;
		struct kind *k = &s->kinds[s->kind_of[i]];
		uint64_t size = s->from->entries[i].size;
		int rc = look_into(s, &s->from->entries[i], &what);
		if (rc < 0) {
			s->rc = s->rc ? s->rc : rc;
			return;
		}
		k->n_of[what.format]++;
		k->bytes_of[what.format] += size;
		k->n_looked++;
		k->looked += size;
	}
}

static int look(struct survey *s)
{
	struct survey *all[LOOKS_AT_ONCE];
	uint32_t seen[CHOOSE_KINDS] = {0};
	s->looks = malloc((size_t)CHOOSE_KINDS * CHOOSE_LOOKS * sizeof(*s->looks));
	if (!s->looks)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < s->from->n; i++) {
		const struct kind *k = &s->kinds[s->kind_of[i]];
		uint64_t want = k->n < CHOOSE_LOOKS ? k->n : CHOOSE_LOOKS;
		if (s->hidden[i])
			continue;
		uint64_t at = seen[s->kind_of[i]]++;
		if ((at + 1) * want / k->n > at * want / k->n)
			s->looks[s->n_looks++] = i;
	}
	for (uint32_t i = 0; i < LOOKS_AT_ONCE; i++)
		all[i] = s;
	uint32_t width = s->n_looks < LOOKS_AT_ONCE ? s->n_looks : LOOKS_AT_ONCE;
	if (width)
		fiber_parallel("look", look_into_some, all, sizeof(all[0]), width, width);
	return s->rc;
}

/* True for a format that does not depend on the bytes, so that no file need be read. */
static bool is_told(const char *format)
{
	return format && (strcmp(format, "files") == 0 || strncmp(format, "fixed:", 6) == 0);
}

int survey_create(struct vol *v, const char *dir, const struct index_source *from,
		  struct survey **ret_survey, struct detail *d)
{
	struct survey *s = calloc(1, sizeof(*s));
	if (!s)
		return -LE_NOMEM;
	s->v = v;
	s->dir = dir;
	s->from = from;
	s->d = d;
	s->kind_of = malloc((size_t)from->n + 1);
	s->hidden = calloc((size_t)from->n + 1, sizeof(*s->hidden));
	int rc = s->kind_of && s->hidden ? 0 : -LE_NOMEM;
	if (rc == 0) {
		sort_by_kind(s);
		rc = is_told(from->format) ? 0 : look(s);
	}
	if (rc < 0)
		survey_destroy(s);
	else
		*ret_survey = s;
	return rc;
}

void survey_destroy(struct survey *s)
{
	if (!s)
		return;
	free(s->kind_of);
	free(s->hidden);
	free(s->looks);
	free(s);
}

/* ---- the format ---- */

/* For each format an estimate of its files, from those that were inspected. n for INDEX_FILES:
 * files of the most frequent kind. */
struct votes {
	uint64_t n[INDEX_FORMATS], bytes[INDEX_FORMATS];
};

/* Single arrays count as plain files: rows as samples only if the caller names "npy". */
static enum index_format candidate_of(uint32_t format)
{
	return format == INDEX_NPY ? INDEX_FILES : (enum index_format)format;
}

static void count_votes(const struct survey *s, struct votes *v)
{
	*v = (struct votes){{0}, {0}};
	for (uint32_t i = 0; i < CHOOSE_KINDS; i++) {
		const struct kind *k = &s->kinds[i];
		for (uint32_t f = 0; f < INDEX_FORMATS; f++) {
			if (k->n_of[f] == 0)
				continue;
			enum index_format c = candidate_of(f);
			uint64_t n = ((uint64_t)k->n * k->n_of[f] + k->n_looked - 1) / k->n_looked;
			if (k->looked)
				v->bytes[c] += (uint64_t)((unsigned __int128)k->bytes *
							  k->bytes_of[f] / k->looked);
			if (c != INDEX_FILES)
				v->n[c] += n;
			else if (n > v->n[c])
				v->n[c] = n;
		}
	}
}

/* True for a single file among many of another format. */
static bool is_stray(const struct votes *v, uint32_t format)
{
	for (uint32_t f = 0; f < INDEX_FORMATS; f++) {
		if (f != format && v->n[f] >= CHOOSE_MANY)
			return v->n[format] == 1;
	}
	return false;
}

static const struct format *guess(const struct survey *s)
{
	struct votes v;
	uint32_t best = INDEX_FILES;
	bool found = false;
	count_votes(s, &v);
	for (uint32_t f = 0; f < INDEX_FORMATS; f++) {
		if (v.n[f] == 0 || is_stray(&v, f))
			continue;
		/* Without any bytes, the names decide. */
		if (!found || v.bytes[f] > v.bytes[best] ||
		    (v.bytes[f] == 0 && v.bytes[best] == 0 && best == INDEX_FILES))
			best = f;
		found = true;
	}
	return format_of((enum index_format)best);
}

int survey_format(const struct survey *s, const struct format **ret_format,
		  struct format_options *ret_options, struct detail *d)
{
	const char *asked = s->from->format;
	*ret_options = (struct format_options){0, 0};
	const struct format *f = asked ? format_find(asked, ret_options) : guess(s);
	if (!f)
		return detail_set(d, -LE_INVAL, s->dir, UINT64_MAX,
				  "no format '%s': tar, tfrecord, mds, ffrecord, npz, npy, "
				  "fixed:BYTES, fixed:BYTES+HEADER or files",
				  asked);
	*ret_format = f;
	return 0;
}

/* ---- the files ---- */

void survey_leave(const struct survey *s, struct index_builder *b, uint32_t entry,
		  enum index_left_why why)
{
	const struct files_entry *e = &s->from->entries[entry];
	index_add_left(b, &(struct index_left_out){.why = why,
						   .kind = s->kinds[s->kind_of[entry]].name,
						   .first = e->path,
						   .n = 1,
						   .bytes = e->size});
}

/* True if folders are classes: no kind of file is both in folders and beside them, and most
 * files are in folders. */
static bool folders_are_classes(const struct survey *s)
{
	uint32_t n_beside = 0, n_folder = 0;
	for (uint32_t i = 0; i < CHOOSE_KINDS; i++) {
		const struct kind *k = &s->kinds[i];
		if (k->n > k->n_folder && k->n_folder > 0)
			return false;
		n_beside += k->n - k->n_folder;
		n_folder += k->n_folder;
	}
	return n_beside < n_folder;
}

/* True if this visible file may be of the format, by its kind. *ret_must: it has to be. */
static bool is_wanted(const struct survey *s, const struct format *f, uint32_t entry,
		      bool *ret_must)
{
	const struct kind *k = &s->kinds[s->kind_of[entry]];
	*ret_must = f->id == INDEX_FIXED ||
		    (k->name[0] && (uint64_t)k->n_of[f->id] * 2 >= k->n_looked);
	return f->id == INDEX_FIXED || k->n_of[f->id] > 0;
}

/* Writes a list such as "3 .jpg, 1 without an end". */
static void print_kinds(const struct survey *s, char *out, size_t size)
{
	size_t used = 0;
	out[0] = 0;
	for (uint32_t i = 0; i < CHOOSE_KINDS && used < size; i++) {
		const struct kind *k = &s->kinds[i];
		if (k->n == 0)
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s%u %s%s", used ? ", " : "",
					 k->n, k->name[0] ? "." : "without an end",
					 k->name);
	}
}

int survey_files(const struct survey *s, const struct format *f, struct index_builder *b,
		 struct candidate *ret_files, uint32_t *ret_n, struct detail *d)
{
	bool classes = f->id == INDEX_FILES && folders_are_classes(s);
	char there[100];
	*ret_n = 0;
	for (uint32_t i = 0; i < s->from->n; i++) {
		bool must = true;
		if (s->hidden[i])
			survey_leave(s, b, i, INDEX_LEFT_HIDDEN);
		else if (classes && !strchr(s->from->entries[i].path, '/'))
			survey_leave(s, b, i, INDEX_LEFT_BESIDE);
		else if (f->id != INDEX_FILES && !is_wanted(s, f, i, &must))
			survey_leave(s, b, i, INDEX_LEFT_FORMAT);
		else
			ret_files[(*ret_n)++] = (struct candidate){i, must};
	}
	if (*ret_n > 0 || s->from->n == 0)
		return 0;
	print_kinds(s, there, sizeof(there));
	return detail_set(d, -LE_NOENT, s->dir, UINT64_MAX,
			  "no file is of the format %s, by its bytes or its name; there are %s",
			  f->name, there);
}
