/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat.conf by libinih, which parses sections and names; this file splits off values and checks
 * them.
 *
 * libinih reports no line numbers, truncates lines at 200 bytes and supports one kind of comment,
 * so it reads through read_line, which counts the lines and replaces the value in each line by a
 * mark.
 */
#include "common/base/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/config_check.h"
#include "common/base/names.h"

#define LINE_SIZE  (CONFIG_STR_MAX + 256)
#define NAME_LEN_MAX  64
#define PARAMS_MAX 512
#define MARK       "\x01" /* replaces the value in the line for libinih */

static const char *const all_sections[] = {"cluster", "mds", "ossd", "client", "mount", "agent"};

#define ROW(...) CONFIG_ROW(struct cluster_params, __VA_ARGS__)
const struct config_param cluster_param_table[] = {CLUSTER_PARAMS(ROW)};
#undef ROW
const int n_cluster_params = ARRAY_SIZE(cluster_param_table);

struct parse {
	FILE *file;
	const char *path;
	const struct config_section *sections;
	int n_sections;
	int line_no;
	char line[LINE_SIZE];
	char *value;            /* points into line, after the = */
	int set_at[PARAMS_MAX]; /* lines that set the parameters of all sections; 0: none yet */
	bool failed;
	char *err;
	size_t err_size;
};

static void *member(const struct config_section *s, const struct config_param *p)
{
	return (char *)s->values + p->offset;
}

static void set_number(const struct config_section *s, const struct config_param *p, uint64_t v)
{
	switch (p->type) {
	case CONFIG_bool:
		*(bool *)member(s, p) = v != 0;
		break;
	case CONFIG_u32:
		*(uint32_t *)member(s, p) = (uint32_t)v;
		break;
	default:
		*(uint64_t *)member(s, p) = v;
		break;
	}
}

static uint64_t get_number(const struct config_section *s, const struct config_param *p)
{
	switch (p->type) {
	case CONFIG_bool:
		return *(const bool *)member(s, p);
	case CONFIG_u32:
		return *(const uint32_t *)member(s, p);
	default:
		return *(const uint64_t *)member(s, p);
	}
}

void config_defaults(const struct config_section *sections, int n_sections)
{
	for (int i = 0; i < n_sections; i++) {
		for (int k = 0; k < sections[i].n_params; k++) {
			const struct config_param *p = &sections[i].params[k];
			if (p->type >= CONFIG_str)
				snprintf(member(&sections[i], p), CONFIG_STR_MAX, "%s",
					 p->def != NULL ? p->def : "");
			else
				set_number(&sections[i], p, p->num_def);
		}
	}
}

static int size_suffix(const char *s, int *ret_shift)
{
	static const char letters[] = "KMGTPE";
	int shift = 0;
	const char *at = *s != '\0' ? strchr(letters, toupper((unsigned char)*s)) : NULL;
	if (at != NULL) {
		shift = 10 * (int)(at - letters + 1);
		s++;
		if (*s == 'i')
			s++;
	}
	if (*s == 'B')
		s++;
	if (*s != '\0')
		return -LE_CONFIG;
	*ret_shift = shift;
	return 0;
}

int config_parse_size(const char *s, uint64_t *ret_bytes)
{
	if (!isdigit((unsigned char)*s))
		return -LE_CONFIG;
	errno = 0;
	char *end;
	uint64_t whole = strtoull(s, &end, 10);
	if (errno != 0)
		return -LE_CONFIG;
	uint64_t fraction = 0, divisor = 1;
	if (*end == '.') {
		end++;
		if (!isdigit((unsigned char)*end))
			return -LE_CONFIG;
		for (; isdigit((unsigned char)*end); end++) {
			if (divisor < 1000000000) {
				fraction = fraction * 10 + (uint64_t)(*end - '0');
				divisor *= 10;
			}
		}
	}
	int shift;
	TRY(size_suffix(end, &shift));
	unsigned __int128 bytes = ((unsigned __int128)whole << shift) +
				  ((unsigned __int128)fraction << shift) / divisor;
	if (bytes > UINT64_MAX)
		return -LE_CONFIG;
	*ret_bytes = (uint64_t)bytes;
	return 0;
}

static int parse_number(const char *s, uint64_t *ret_value)
{
	if (!isdigit((unsigned char)*s))
		return -LE_CONFIG;
	errno = 0;
	char *end;
	/* 010 is ten: users do not mean octal. */
	uint64_t v = strtoull(s, &end, s[0] == '0' && (s[1] | 32) == 'x' ? 16 : 10);
	if (errno != 0 || *end != '\0')
		return -LE_CONFIG;
	*ret_value = v;
	return 0;
}

static int parse_bool(const char *s, uint64_t *ret_value)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
			*ret_value = strcasecmp(s, yes[i]) == 0;
			return 0;
		}
	}
	return -LE_CONFIG;
}

static int parse_value(const struct config_param *p, const char *value, uint64_t *ret_value)
{
	switch (p->type) {
	case CONFIG_bool:
		return parse_bool(value, ret_value);
	case CONFIG_size:
		return config_parse_size(value, ret_value);
	default:
		return parse_number(value, ret_value);
	}
}

static const char *type_word(const struct config_param *p, char buf[96])
{
	static const char *const times[] = {"us", "ms", "s", "min", "h"};

	switch (p->type) {
	case CONFIG_bool:
		return "yes or no";
	case CONFIG_size:
		return "a size (4096, 64K, 1G)";
	default:
		break;
	}
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		if (strcmp(p->unit, times[i]) == 0) {
			snprintf(buf, 96, "a number (of %s, without the unit)", p->unit);
			return buf;
		}
	return "a number";
}

/* Formats 65536 as 64K; a number that is not a whole number of K stays as it is. */
static const char *format_number(enum config_type type, uint64_t v, char buf[32])
{
	static const char letters[] = "KMGTPE";
	if (type == CONFIG_bool)
		return v != 0 ? "yes" : "no";
	int shift = 0;
	if (type == CONFIG_size && v != 0)
		while (shift < 6 && (v & 1023) == 0) {
			v >>= 10;
			shift++;
		}
	if (shift > 0)
		snprintf(buf, 32, "%" PRIu64 "%c", v, letters[shift - 1]);
	else
		snprintf(buf, 32, "%" PRIu64, v);
	return buf;
}

static const struct config_param *param_find(const struct config_section *s, const char *name)
{
	for (int i = 0; i < s->n_params; i++) {
		if (strcmp(s->params[i].name, name) == 0)
			return &s->params[i];
	}
	return NULL;
}

static int set_text(const struct config_section *section, const struct config_param *p,
		    const char *value, char *ret_err, size_t err_size)
{
	char text[CONFIG_STR_MAX];

	if (strlen(value) >= CONFIG_STR_MAX) {
		snprintf(ret_err, err_size, "%s: longer than %d bytes", p->name,
			 CONFIG_STR_MAX - 1);
		return -LE_CONFIG;
	}
	memcpy(text, value, strlen(value) + 1);
	TRY(config_check_text(p, text, ret_err, err_size));
	memcpy(member(section, p), text, sizeof(text));
	return 0;
}

int config_set(const struct config_section *section, const char *name, const char *value,
	       char *ret_err, size_t err_size)
{
	const struct config_param *p = param_find(section, name);
	char a[64], b[64], type[96];

	if (p == NULL) {
		snprintf(ret_err, err_size, "unknown parameter '%s' in [%s]",
			 config_shorten(name, a), section->section);
		return -LE_CONFIG;
	}
	if (p->type >= CONFIG_str)
		return set_text(section, p, value, ret_err, err_size);
	uint64_t v = 0;
	if (parse_value(p, value, &v) < 0) {
		snprintf(ret_err, err_size, "%s: '%s' is not %s", name, config_shorten(value, a),
			 type_word(p, type));
		return -LE_CONFIG;
	}
	uint64_t max = p->type == CONFIG_u32 && p->max > UINT32_MAX ? UINT32_MAX : p->max;
	if (p->type != CONFIG_bool && (v < p->min || v > max)) {
		char short_value[64];

		snprintf(ret_err, err_size, "%s: %s is not within %s..%s", name,
			 config_shorten(value, short_value), format_number(p->type, p->min, a),
			 format_number(p->type, max, b));
		return -LE_CONFIG;
	}
	set_number(section, p, v);
	return 0;
}

static bool section_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(all_sections); i++) {
		if (strcmp(all_sections[i], name) == 0)
			return true;
	}
	return false;
}

static void fail_at(struct parse *p, int line_no, const char *what)
{
	if (p->failed)
		return;
	p->failed = true;
	snprintf(p->err, p->err_size, "%s:%d: %s", p->path, line_no, what);
	text_make_printable(p->err);
}

/* Returns where the line that set this parameter is stored, or NULL for an unknown parameter. */
static int *set_at(struct parse *p, const struct config_section *s, const char *name)
{
	const struct config_param *param = s != NULL ? param_find(s, name) : NULL;
	int at = 0;

	if (param == NULL)
		return NULL;
	for (const struct config_section *k = p->sections; k < s; k++)
		at += k->n_params;
	at += (int)(param - s->params);
	ASSERT(at < PARAMS_MAX);
	return &p->set_at[at];
}

static const struct config_section *section_find(const struct parse *p, const char *name)
{
	for (int i = 0; i < p->n_sections; i++)
		if (strcmp(p->sections[i].section, name) == 0)
			return &p->sections[i];
	return NULL;
}

static int on_value(void *arg, const char *section, const char *name, const char *mark)
{
	struct parse *p = arg;
	const struct config_section *s = section_find(p, section);
	char what[512];

	(void)mark;
	if (p->failed)
		return 0;
	if (s != NULL) {
		int *at = set_at(p, s, name);

		if (at != NULL && *at != 0) {
			snprintf(what, sizeof(what), "%s is set twice: also in line %d", name, *at);
		} else if (config_set(s, name, p->value, what, sizeof(what)) == 0) {
			*at = p->line_no;
			return 1;
		}
	} else if (section_known(section)) {
		return 1; /* a section of another program */
	} else if (*section == '\0') {
		snprintf(what, sizeof(what), "'%s' stands in no section", name);
	} else {
		snprintf(what, sizeof(what), "unknown section [%s]", section);
	}
	fail_at(p, p->line_no, what);
	return 0;
}

static bool begins_comment(const char *text)
{
	return *text == '#' || *text == ';';
}

/* Writes "[name]" for libinih. libinih never calls on_value for a section without values, so its
 * name is checked here. */
static void take_section(struct parse *p, const char *line, char *buf, int size)
{
	const char *end = strchr(line, ']'), *rest;
	char name[NAME_LEN_MAX], what[128];

	if (end == NULL || (size_t)(end - line) > sizeof(name)) {
		fail_at(p, p->line_no, "malformed section");
		return;
	}
	rest = end + 1 + strspn(end + 1, " \t");
	if (*rest != '\0' && !begins_comment(rest)) {
		fail_at(p, p->line_no, "text stands behind the name of the section");
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
	if (!section_known(name) && section_find(p, name) == NULL) {
		snprintf(what, sizeof(what), "unknown section [%s]", name);
		fail_at(p, p->line_no, what);
		return;
	}
	snprintf(buf, (size_t)size, "[%s]\n", name);
}

static void take_quoted(struct parse *p, char *v)
{
	char *end = strchr(v + 1, *v), *rest;

	if (end == NULL) {
		fail_at(p, p->line_no, "the quote in front of the value is not closed");
		return;
	}
	rest = end + 1 + strspn(end + 1, " \t");
	if (*rest != '\0' && !begins_comment(rest)) {
		fail_at(p, p->line_no, "text stands behind the closing quote of the value");
		return;
	}
	*end = '\0';
	p->value = v + 1;
}

/* Splits "name = value # comment": "name=MARK" for libinih, the value for on_value. */
static void take_value(struct parse *p, char *line, char *buf, int size)
{
	char *eq = strpbrk(line, "=:"), *v, *end;

	if (eq == NULL || eq == line) {
		fail_at(p, p->line_no, "expected [section] or name = value");
		return;
	}
	if (eq - line > NAME_LEN_MAX) {
		fail_at(p, p->line_no, "no parameter has a name as long as this");
		return;
	}
	v = eq + 1 + strspn(eq + 1, " \t");
	if (*v == '"' || *v == '\'') {
		take_quoted(p, v);
	} else {
		for (end = v; *end != '\0'; end++)
			if (begins_comment(end) && (end == v || end[-1] == ' ' || end[-1] == '\t'))
				break;
		while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
			end--;
		*end = '\0';
		p->value = v;
	}
	snprintf(buf, (size_t)size, "%.*s=" MARK "\n", (int)(eq - line), line);
}

/* Reads the next line, without its end and the blanks before that. Returns false at the end of the
 * file or after a failure. */
static bool next_line(struct parse *p)
{
	size_t n = 0;
	int c;

	p->line_no++;
	while ((c = getc(p->file)) != EOF && c != '\n') {
		if (n == sizeof(p->line) - 1) {
			fail_at(p, p->line_no, "line too long");
			return false;
		}
		p->line[n++] = (char)c;
	}
	if (c == EOF && n == 0)
		return false;
	while (n > 0 && strchr(" \t\r", p->line[n - 1]) != NULL && p->line[n - 1] != '\0')
		n--;
	p->line[n] = '\0';
	for (size_t i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)p->line[i];
		char what[64];

		if ((byte >= ' ' && byte != 0x7f) || byte == '\t')
			continue;
		snprintf(what, sizeof(what), "byte 0x%02x is no text", byte);
		fail_at(p, p->line_no, what);
		return false;
	}
	return true;
}

static char *read_line(char *buf, int size, void *arg)
{
	static const char bom[] = "\xef\xbb\xbf"; /* UTF-8 byte order mark of some editors */
	struct parse *p = arg;
	char *line = p->line;

	if (p->failed || !next_line(p))
		return NULL;
	if (p->line_no == 1 && strncmp(line, bom, strlen(bom)) == 0)
		line += strlen(bom);
	/* For libinih, leading blanks would make it a continuation of the previous line. */
	line += strspn(line, " \t");
	if (*line == '\0' || begins_comment(line))
		snprintf(buf, (size_t)size, "\n");
	else if (*line == '[')
		take_section(p, line, buf, size);
	else
		take_value(p, line, buf, size);
	return p->failed ? NULL : buf;
}

/* Checks parameters that depend on each other. The error names the line of the later one. */
static void check_together(struct parse *p)
{
	const struct config_section *s = section_find(p, "cluster");
	int *mds, *transport;
	char what[512];

	if (s == NULL || s->params != cluster_param_table ||
	    config_check_cluster(s->values, what, sizeof(what)) == 0)
		return;
	mds = set_at(p, s, "mds");
	transport = set_at(p, s, "transport");
	fail_at(p, *mds > *transport ? *mds : *transport, what);
}

static int parse_file(struct parse *p)
{
	int rc = ini_parse_stream(read_line, p, on_value, p);
	if (!p->failed && ferror(p->file)) {
		p->failed = true;
		snprintf(p->err, p->err_size, "%s: cannot be read: %s", p->path, strerror(errno));
	}
	if (!p->failed && rc != 0)
		fail_at(p, rc > 0 ? rc : p->line_no, "expected [section] or name = value");
	if (!p->failed)
		check_together(p);
	return p->failed ? -LE_CONFIG : 0;
}

const char *config_path(const char *path, bool *ret_may_be_missing)
{
	*ret_may_be_missing = false;
	if (path == NULL)
		path = getenv("LEAT_CONF");
	if (path != NULL && *path != '\0')
		return path;
	*ret_may_be_missing = true;
	return CONFIG_PATH;
}

int config_load(const char *path, const struct config_section *sections, int n_sections,
		char *ret_err, size_t err_size)
{
	bool may_be_missing;

	config_defaults(sections, n_sections);
	path = config_path(path, &may_be_missing);
	struct parse p = {.path = path,
			  .sections = sections,
			  .n_sections = n_sections,
			  .err = ret_err,
			  .err_size = err_size};
	p.file = fopen(path, "re");
	if (p.file == NULL) {
		if (may_be_missing && errno == ENOENT)
			return 0;
		snprintf(ret_err, err_size, "%s: %s", path, strerror(errno));
		return -LE_CONFIG;
	}
	int rc = parse_file(&p);
	fclose(p.file);
	return rc;
}

int config_check_files(const char *program, char *const *files, int n_files,
		       int (*judge)(void *arg, const char *path, char *err, size_t err_size),
		       void *arg)
{
	char err[CONFIG_ERR_SIZE];
	bool may_be_missing;
	int n_refused = 0;

	for (int i = 0; i == 0 || i < n_files; i++) {
		const char *path = n_files > 0 ? files[i] : NULL;

		err[0] = '\0';
		if (judge(arg, path, err, sizeof(err)) == 0) {
			printf("%s: good\n", config_path(path, &may_be_missing));
		} else {
			fprintf(stderr, "%s: %s\n", program, err);
			n_refused++;
		}
	}
	return n_refused;
}

/* Returns whether config_load would read the value unchanged only in quotes. */
static bool wants_quotes(const char *v)
{
	size_t n = strlen(v);

	if (n > 0 && (strchr("\"' \t", v[0]) != NULL || strchr(" \t", v[n - 1]) != NULL))
		return true;
	for (const char *c = v; *c != '\0'; c++)
		if (begins_comment(c) && (c == v || c[-1] == ' ' || c[-1] == '\t'))
			return true;
	return false;
}

static void print_param(const struct config_section *s, const struct config_param *p, bool sample,
			FILE *out)
{
	char a[32], b[32];
	if (sample) {
		fprintf(out, "# %s", p->help);
		if (p->type == CONFIG_word)
			fprintf(out, " (%s)", p->unit);
		else if (p->type < CONFIG_str && p->type != CONFIG_bool)
			fprintf(out, " (%s%s%s..%s)", p->unit, *p->unit != '\0' ? ", " : "",
				format_number(p->type, p->min, a),
				format_number(p->type, p->max, b));
		fprintf(out, "\n#");
	}
	const char *value;
	if (p->type >= CONFIG_str)
		value = !sample ? member(s, p) : p->def != NULL ? p->def : "";
	else
		value = format_number(p->type, sample ? p->num_def : get_number(s, p), a);
	const char *quote = !wants_quotes(value) ? "" : strchr(value, '"') != NULL ? "'" : "\"";
	fprintf(out, "%s = %s%s%s\n", p->name, quote, value, quote);
}

static void print_sections(const struct config_section *sections, int n_sections, bool sample,
			   FILE *out)
{
	for (int i = 0; i < n_sections; i++) {
		fprintf(out, "%s[%s]\n", i > 0 ? "\n" : "", sections[i].section);
		for (int k = 0; k < sections[i].n_params; k++)
			print_param(&sections[i], &sections[i].params[k], sample, out);
	}
}

void config_print_sample(const struct config_section *sections, int n_sections, FILE *out)
{
	print_sections(sections, n_sections, true, out);
}

void config_print_values(const struct config_section *sections, int n_sections, FILE *out)
{
	print_sections(sections, n_sections, false, out);
}
