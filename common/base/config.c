/*
 * leat.conf by libinih, which splits lines; values are checked here against the tables.
 *
 * libinih tells no line numbers and cuts lines at 200 bytes, so it reads through a reader of
 * ours: that counts the lines, and keeps what stands behind the = of a long line, of which the
 * library gets to see the name and a mark only.
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

#define LINE_SIZE  (CONFIG_STR_MAX + 256)
#define LONG_VALUE "\x01"

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
	char *long_value; /* into line; NULL when libinih got the whole line */
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
			if (p->type == CONFIG_str)
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
	uint64_t v = strtoull(s, &end, 0);
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

static const char *type_word(enum config_type type)
{
	switch (type) {
	case CONFIG_bool:
		return "yes or no";
	case CONFIG_size:
		return "a size (4096, 64K, 1G)";
	default:
		return "a number";
	}
}

/* 65536 as 64K, for people; what is not a whole number of K stays as it is. */
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

int config_set(const struct config_section *section, const char *name, const char *value,
	       char *ret_err, size_t err_size)
{
	const struct config_param *p = param_find(section, name);
	if (p == NULL) {
		snprintf(ret_err, err_size, "unknown parameter '%s' in [%s]", name,
			 section->section);
		return -LE_CONFIG;
	}
	if (p->type == CONFIG_str) {
		if (strlen(value) >= CONFIG_STR_MAX) {
			snprintf(ret_err, err_size, "%s: longer than %d bytes", name,
				 CONFIG_STR_MAX - 1);
			return -LE_CONFIG;
		}
		snprintf(member(section, p), CONFIG_STR_MAX, "%s", value);
		return 0;
	}
	uint64_t v = 0;
	if (parse_value(p, value, &v) < 0) {
		snprintf(ret_err, err_size, "%s: '%s' is not %s", name, value, type_word(p->type));
		return -LE_CONFIG;
	}
	uint64_t max = p->type == CONFIG_u32 && p->max > UINT32_MAX ? UINT32_MAX : p->max;
	if (p->type != CONFIG_bool && (v < p->min || v > max)) {
		char a[32], b[32];
		snprintf(ret_err, err_size, "%s: %s is not within %s..%s", name, value,
			 format_number(p->type, p->min, a), format_number(p->type, max, b));
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

static void fail_at(struct parse *p, const char *what)
{
	p->failed = true;
	snprintf(p->err, p->err_size, "%s:%d: %s", p->path, p->line_no, what);
}

static int on_value(void *arg, const char *section, const char *name, const char *value)
{
	struct parse *p = arg;
	if (p->failed)
		return 0;
	if (p->long_value != NULL)
		value = p->long_value;
	const struct config_section *s = NULL;
	for (int i = 0; i < p->n_sections; i++) {
		if (strcmp(p->sections[i].section, section) == 0)
			s = &p->sections[i];
	}
	char what[512];
	if (s != NULL) {
		if (config_set(s, name, value, what, sizeof(what)) == 0)
			return 1;
	} else if (section_known(section)) {
		return 1; /* another program's affair */
	} else if (*section == '\0') {
		snprintf(what, sizeof(what), "'%s' stands in no section", name);
	} else {
		snprintf(what, sizeof(what), "unknown section [%s]", section);
	}
	fail_at(p, what);
	return 0;
}

/* A section without a value never reaches on_value: its name is checked here. */
static void check_section(struct parse *p, const char *line)
{
	const char *end = strchr(line, ']');
	char name[64], what[128];
	if (end == NULL || (size_t)(end - line) > sizeof(name)) {
		fail_at(p, "malformed section");
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
	bool known = section_known(name);
	for (int i = 0; i < p->n_sections; i++)
		known = known || strcmp(p->sections[i].section, name) == 0;
	if (!known) {
		snprintf(what, sizeof(what), "unknown section [%s]", name);
		fail_at(p, what);
	}
}

/* Leaves "name = <mark>" for libinih and keeps the trimmed value in the line. */
static char *hand_out_long(struct parse *p, char *line, char *buf, int size)
{
	char *eq = strpbrk(line, "=:");
	if (eq == NULL || eq - line > 64 || size < 80) {
		fail_at(p, "line too long");
		return NULL;
	}
	char *v = eq + 1 + strspn(eq + 1, " \t");
	char *comment = strstr(v, " ;");
	char *end = comment != NULL ? comment : v + strlen(v);
	while (end > v && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	p->long_value = v;
	snprintf(buf, (size_t)size, "%.*s=" LONG_VALUE "\n", (int)(eq - line), line);
	return buf;
}

static char *read_line(char *buf, int size, void *arg)
{
	struct parse *p = arg;
	p->long_value = NULL;
	if (p->failed || fgets(p->line, sizeof(p->line), p->file) == NULL)
		return NULL;
	p->line_no++;
	size_t len = strlen(p->line);
	/* Leading blanks would make it a continuation of the line before: not in our files. */
	char *line = p->line + strspn(p->line, " \t");
	if (len == sizeof(p->line) - 1 && p->line[len - 1] != '\n') {
		fail_at(p, "line too long");
		return NULL;
	}
	if (*line == '#' || *line == ';') {
		snprintf(buf, (size_t)size, "\n");
		return buf;
	}
	if (*line == '[')
		check_section(p, line);
	if (p->failed)
		return NULL;
	if (strlen(line) + 1 < (size_t)size) {
		memcpy(buf, line, strlen(line) + 1);
		return buf;
	}
	return hand_out_long(p, line, buf, size);
}

static int parse_file(struct parse *p)
{
	int rc = ini_parse_stream(read_line, p, on_value, p);
	if (!p->failed && ferror(p->file)) {
		p->failed = true;
		snprintf(p->err, p->err_size, "%s: cannot be read", p->path);
	}
	if (!p->failed && rc != 0) {
		p->line_no = rc > 0 ? rc : p->line_no;
		fail_at(p, "expected [section] or name = value");
	}
	return p->failed ? -LE_CONFIG : 0;
}

int config_load(const char *path, const struct config_section *sections, int n_sections,
		char *ret_err, size_t err_size)
{
	config_defaults(sections, n_sections);
	bool may_be_missing = false;
	if (path == NULL)
		path = getenv("LEAT_CONF");
	if (path == NULL || *path == '\0') {
		path = CONFIG_PATH;
		may_be_missing = true;
	}
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

static void print_param(const struct config_section *s, const struct config_param *p, bool sample,
			FILE *out)
{
	char a[32], b[32];
	if (sample) {
		fprintf(out, "# %s", p->help);
		if (p->type != CONFIG_str && p->type != CONFIG_bool)
			fprintf(out, " (%s%s%s..%s)", p->unit, *p->unit != '\0' ? ", " : "",
				format_number(p->type, p->min, a),
				format_number(p->type, p->max, b));
		fprintf(out, "\n#");
	}
	const char *value;
	if (p->type == CONFIG_str)
		value = !sample ? member(s, p) : p->def != NULL ? p->def : "";
	else
		value = format_number(p->type, sample ? p->num_def : get_number(s, p), a);
	fprintf(out, "%s = %s\n", p->name, value);
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
