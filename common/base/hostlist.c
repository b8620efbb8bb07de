/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/hostlist.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/checksum.h"

#define DIGITS_MAX 9u   /* of a number in brackets */
#define GROUPS_MAX 8u   /* brackets of one name */
#define RANGES_MAX 512u /* within the brackets of one name */
#define STEPS_MAX  (16 * HOSTLIST_MAX)

struct parser {
	struct hostlist list;
	char *err;
	size_t err_size;
	unsigned int line; /* 0: the input has no lines */
	uint32_t steps;    /* names expanded from brackets, duplicates included */
};

__attribute__((format(printf, 2, 3))) static int refuse(struct parser *p, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (p->err && p->line)
		snprintf(p->err, p->err_size, "line %u: %s", p->line, text);
	else if (p->err)
		snprintf(p->err, p->err_size, "%s", text);
	return -LE_INVAL;
}

/* ---- each name once: open addressing over the names ---- */

static uint32_t *slot_of(const struct hostlist *l, const char *name, size_t len)
{
	uint32_t i = (uint32_t)checksum64(name, len) & (l->n_slots - 1);

	while (l->slots[i] != 0) {
		const char *have = l->names[l->slots[i] - 1];
		if (strlen(have) == len && memcmp(have, name, len) == 0)
			break;
		i = (i + 1) & (l->n_slots - 1);
	}
	return &l->slots[i];
}

static int grow(struct hostlist *l)
{
	uint32_t cap = l->cap ? l->cap * 2 : 16, n_slots = cap * 2;
	char **names = realloc(l->names, cap * sizeof(*names));
	uint32_t *slots;

	if (!names)
		return -LE_NOMEM;
	l->names = names;
	slots = calloc(n_slots, sizeof(*slots));
	if (!slots)
		return -LE_NOMEM;
	free(l->slots);
	l->slots = slots;
	l->n_slots = n_slots;
	l->cap = cap;
	for (uint32_t i = 0; i < l->n; i++)
		*slot_of(l, l->names[i], strlen(l->names[i])) = i + 1;
	return 0;
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

static int add(struct parser *p, const char *name, size_t len)
{
	struct hostlist *l = &p->list;
	uint32_t *slot;
	char *copy;

	if (len == 0)
		return refuse(p, "a name is empty");
	if (len > HOSTLIST_NAME_MAX)
		return refuse(p, "a name is longer than %u", HOSTLIST_NAME_MAX);
	/* A name must not be an option or a path to the programs that get it. */
	if (!isalnum((unsigned char)name[0]))
		return refuse(p, "'%.*s' is no host name", (int)len, name);
	for (size_t i = 0; i < len; i++)
		if (!is_name_char(name[i]))
			return refuse(p, "'%.*s' is no host name", (int)len, name);
	if (l->n == l->cap)
		TRY(grow(l));
	slot = slot_of(l, name, len);
	if (*slot != 0)
		return 0;
	if (l->n == HOSTLIST_MAX)
		return refuse(p, "more than %u nodes", HOSTLIST_MAX);
	copy = malloc(len + 1); /* strndup would search for a NUL beyond the name */
	if (!copy)
		return -LE_NOMEM;
	memcpy(copy, name, len);
	copy[len] = '\0';
	l->names[l->n] = copy;
	*slot = ++l->n;
	return 0;
}

/* ---- Slurm's expressions ---- */

struct range {
	uint32_t first, last, width;
};

struct group {
	const char *before; /* the text before the bracket */
	size_t before_len;
	uint32_t first_range, n_ranges;
};

/* prefix[..]middle[..]suffix */
struct expr {
	struct group groups[GROUPS_MAX];
	struct range ranges[RANGES_MAX];
	uint32_t n_groups, n_ranges;
	const char *after;
	size_t after_len;
};

static int number(struct parser *p, const char **at, const char *end, uint32_t *ret_n,
		  uint32_t *ret_width)
{
	const char *start = *at;
	uint32_t n = 0;

	while (*at < end && isdigit((unsigned char)**at) && *at - start < (ptrdiff_t)DIGITS_MAX)
		n = n * 10 + (uint32_t)(*(*at)++ - '0');
	if (*at == start || (*at < end && isdigit((unsigned char)**at)))
		return refuse(p, "in brackets: numbers of at most %u digits, 1-3 or 1,2,5",
			      DIGITS_MAX);
	*ret_n = n;
	*ret_width = (uint32_t)(*at - start);
	return 0;
}

/* Parses a bracket. at points after its opening, and ends after its closing. */
static int parse_group(struct parser *p, struct expr *x, const char **at, const char *end)
{
	struct group *g = &x->groups[x->n_groups];

	g->first_range = x->n_ranges;
	g->n_ranges = 0;
	for (;;) {
		uint32_t width;
		struct range r;

		if (x->n_ranges == RANGES_MAX)
			return refuse(p, "more than %u ranges in one name", RANGES_MAX);
		TRY(number(p, at, end, &r.first, &r.width));
		r.last = r.first;
		if (*at < end && **at == '-') {
			(*at)++;
			TRY(number(p, at, end, &r.last, &width));
		}
		if (r.last < r.first || r.last - r.first >= HOSTLIST_MAX)
			return refuse(p, "[%u-%u] is no range of at most %u", r.first, r.last,
				      HOSTLIST_MAX);
		x->ranges[x->n_ranges++] = r;
		g->n_ranges++;
		if (*at < end && **at == ',') {
			(*at)++;
			continue;
		}
		if (*at == end || **at != ']')
			return refuse(p, "a bracket is not closed");
		(*at)++;
		x->n_groups++;
		return 0;
	}
}

struct name {
	char text[HOSTLIST_NAME_MAX + 2];
	size_t len;
};

static bool append(struct name *n, const char *text, size_t len)
{
	if (n->len + len > HOSTLIST_NAME_MAX)
		return false;
	memcpy(n->text + n->len, text, len);
	n->len += len;
	return true;
}

/* Adds all names that the groups from `group` on expand to. Recurses at most GROUPS_MAX deep. */
static int expand(struct parser *p, const struct expr *x, uint32_t group, struct name *n)
{
	size_t before = n->len;
	char digits[16];

	if (group == x->n_groups) {
		if (++p->steps > STEPS_MAX)
			return refuse(p, "the same nodes over and over");
		if (!append(n, x->after, x->after_len))
			return refuse(p, "a name is longer than %u", HOSTLIST_NAME_MAX);
		return add(p, n->text, n->len);
	}
	const struct group *g = &x->groups[group];
	for (uint32_t i = 0; i < g->n_ranges; i++) {
		const struct range *r = &x->ranges[g->first_range + i];
		for (uint32_t v = r->first; v <= r->last; v++) {
			int len = snprintf(digits, sizeof(digits), "%0*u", (int)r->width, v);
			n->len = before;
			if (!append(n, g->before, g->before_len) || !append(n, digits, (size_t)len))
				return refuse(p, "a name is longer than %u", HOSTLIST_NAME_MAX);
			TRY(expand(p, x, group + 1, n));
		}
	}
	n->len = before;
	return 0;
}

/* Parses one name with its brackets. It ends at a comma or blank outside of them, or at the end. */
static int parse_expr(struct parser *p, struct expr *x, const char **at, const char *end)
{
	struct name n = {.len = 0};
	const char *start = *at;

	x->n_groups = x->n_ranges = 0;
	while (*at < end && **at != ',' && !isspace((unsigned char)**at)) {
		if (**at != '[') {
			(*at)++;
			continue;
		}
		if (x->n_groups == GROUPS_MAX)
			return refuse(p, "more than %u brackets in one name", GROUPS_MAX);
		x->groups[x->n_groups].before = start;
		x->groups[x->n_groups].before_len = (size_t)(*at - start);
		(*at)++;
		TRY(parse_group(p, x, at, end));
		start = *at;
	}
	x->after = start;
	x->after_len = (size_t)(*at - start);
	return expand(p, x, 0, &n);
}

static int parse_slurm(struct parser *p, const char *at, const char *end)
{
	struct expr *x = malloc(sizeof(*x));
	int rc = x ? 0 : -LE_NOMEM;

	while (rc == 0 && at < end && isspace((unsigned char)end[-1]))
		end--;
	while (rc == 0 && at < end) {
		rc = parse_expr(p, x, &at, end);
		if (rc == 0 && at < end && *at != ',')
			rc = refuse(p, "a blank in a list of nodes");
		if (rc == 0 && at < end && ++at == end)
			rc = refuse(p, "a name is empty");
	}
	free(x);
	return rc;
}

/* ---- files ---- */

static size_t word_len(const char *at, const char *end)
{
	const char *start = at;

	while (at < end && !isspace((unsigned char)*at))
		at++;
	return (size_t)(at - start);
}

static bool is_count(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]))
			return false;
	return len > 0 && len <= DIGITS_MAX;
}

/* Returns the length of the name in "name:4". Any other text after a colon counts to the name,
 * which is then refused. */
static size_t without_slots(const char *word, size_t len)
{
	const char *colon = memchr(word, ':', len);

	return colon && is_count(colon + 1, len - (size_t)(colon + 1 - word))
		       ? (size_t)(colon - word)
		       : len;
}

/* Checks what follows the name on its line. */
static int check_rest(struct parser *p, enum hostlist_format format, const char *at,
		      const char *end)
{
	for (unsigned int field = 2;; field++) {
		while (at < end && isspace((unsigned char)*at))
			at++;
		size_t len = word_len(at, end);
		if (len == 0)
			return format == HOSTLIST_SGE && field < 3
				       ? refuse(p, "name and slots are needed")
				       : 0;
		bool setting = memchr(at, '=', len) != NULL;
		bool good = format == HOSTLIST_SGE   ? field > 2 || is_count(at, len)
			    : format == HOSTLIST_PBS ? false
						     : setting;
		if (!good)
			return refuse(p, "'%.*s' is not understood", (int)(len < 64 ? len : 64),
				      at);
		at += len;
	}
}

static int parse_line(struct parser *p, enum hostlist_format format, const char *at,
		      const char *end)
{
	const char *comment = format == HOSTLIST_OPENMPI || format == HOSTLIST_HYDRA
				      ? memchr(at, '#', (size_t)(end - at))
				      : NULL;

	if (comment)
		end = comment;
	while (at < end && isspace((unsigned char)*at))
		at++;
	size_t len = word_len(at, end);
	if (len == 0)
		return 0;
	TRY(check_rest(p, format, at + len, end));
	if (format == HOSTLIST_HYDRA || format == HOSTLIST_OPENMPI)
		len = without_slots(at, len);
	return add(p, at, len);
}

static int parse_lines(struct parser *p, enum hostlist_format format, const char *at,
		       const char *end)
{
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *stop = newline ? newline : end;

		p->line++;
		TRY(parse_line(p, format, at, stop));
		at = newline ? newline + 1 : end;
	}
	p->line = 0;
	return 0;
}

int hostlist_parse(enum hostlist_format format, const char *text, size_t len,
		   struct hostlist *ret_list, char *err, size_t err_size)
{
	struct parser p = {.err = err_size ? err : NULL, .err_size = err_size};
	int rc = 0;

	if (len > HOSTLIST_TEXT_MAX)
		rc = refuse(&p, "longer than %u bytes", HOSTLIST_TEXT_MAX);
	else if (memchr(text, 0, len))
		rc = refuse(&p, "not a text");
	else if (format == HOSTLIST_SLURM)
		rc = parse_slurm(&p, text, text + len);
	else
		rc = parse_lines(&p, format, text, text + len);
	if (rc == 0 && p.list.n == 0)
		rc = refuse(&p, "no node in it");
	if (rc < 0) {
		hostlist_fini(&p.list);
		return rc;
	}
	*ret_list = p.list;
	return 0;
}

void hostlist_fini(struct hostlist *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	free(l->slots);
	*l = (struct hostlist){.n = 0};
}

/* ---- where lists come from ---- */

static int read_text(const char *path, char **ret_text, size_t *ret_len, char *err, size_t err_size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = fd < 0 ? NULL : malloc(HOSTLIST_TEXT_MAX + 1);
	size_t len = 0;
	ssize_t n = 1;

	while (text && n > 0 && len <= HOSTLIST_TEXT_MAX) {
		n = read(fd, text + len, HOSTLIST_TEXT_MAX + 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	int rc = fd < 0 || (text && n < 0) ? status_from_errno(errno) : text ? 0 : -LE_NOMEM;
	if (fd >= 0)
		close(fd);
	if (rc < 0) {
		if (err && err_size)
			snprintf(err, err_size, "%s: %s", path, status_text(rc));
		free(text);
		return rc;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

static int parse_file(const char *path, const enum hostlist_format *formats, int n_formats,
		      struct hostlist *ret_list, char *err, size_t err_size)
{
	char *text, why[256] = "";
	size_t len;
	int rc;

	TRY(read_text(path, &text, &len, err, err_size));
	rc = -LE_INVAL;
	for (int i = 0; i < n_formats && rc == -LE_INVAL; i++)
		rc = hostlist_parse(formats[i], text, len, ret_list, why, sizeof(why));
	free(text);
	if (rc < 0 && err && err_size)
		snprintf(err, err_size, "%s: %s", path, why[0] ? why : status_text(rc));
	return rc;
}

int hostlist_read(const char *what, struct hostlist *ret_list, char *err, size_t err_size)
{
	/* Lines of Open MPI and hydra differ only in settings, and extend lines of plain names. The
	 * error is that of the last format. */
	static const enum hostlist_format any[] = {HOSTLIST_PBS, HOSTLIST_SGE, HOSTLIST_SLURM,
						   HOSTLIST_HYDRA};

	if (what[0] == '@' || strchr(what, '/'))
		return parse_file(what + (what[0] == '@'), any, 4, ret_list, err, err_size);
	return hostlist_parse(HOSTLIST_SLURM, what, strlen(what), ret_list, err, err_size);
}

int hostlist_of_job(struct hostlist *ret_list, char *err, size_t err_size)
{
	static const enum hostlist_format pbs = HOSTLIST_PBS, sge = HOSTLIST_SGE;
	const char *nodes = getenv("SLURM_JOB_NODELIST");

	if (nodes)
		return hostlist_parse(HOSTLIST_SLURM, nodes, strlen(nodes), ret_list, err,
				      err_size);
	nodes = getenv("PBS_NODEFILE");
	if (nodes)
		return parse_file(nodes, &pbs, 1, ret_list, err, err_size);
	nodes = getenv("PE_HOSTFILE");
	if (nodes)
		return parse_file(nodes, &sge, 1, ret_list, err, err_size);
	return -LE_NOENT;
}
