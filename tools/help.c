/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage texts have a form (each cmd_NAME.c):
 *
 *   usage: leat NAME VERB|VERB [--option] …     lines of the usage, each a verb's, or all verbs'
 *          leat NAME VERB …
 *   Text in whole lines.
 *     VERB WHAT    what it does                  of families with one line of usage
 *     --option     what it does
 *   Examples:
 *     leat NAME VERB …
 *
 * A line that is indented deeper continues the line before.
 */
#include "tools/help.h"

#include <string.h>

#include "common/base/assert.h"

#define WORD_MAX   32
#define WORDS_MAX  64
#define DISTANCE   2
#define USAGE_PART 7 /* "usage: " */

enum part {
	PART_USAGE,
	PART_TEXT,
	PART_VERB,
	PART_OPTION,
	PART_EXAMPLES, /* the line "Examples:" */
	PART_EXAMPLE
};

struct piece {
	enum part part;
	const char *text;
	size_t len; /* includes the lines that continue it */
};

/* ---- words ---- */

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* Reads the word at p, which may be empty. Returns the end of the word. */
static const char *take_word(const char *p, char word[WORD_MAX])
{
	size_t n = 0;

	for (; is_word(*p); p++)
		if (n + 1 < WORD_MAX)
			word[n++] = *p;
	word[n] = '\0';
	return p;
}

/* Returns how many letters must be changed, omitted, inserted or exchanged; DISTANCE + 1: more than
 * DISTANCE. */
static int distance(const char *a, const char *b)
{
	int rows[3][WORD_MAX + 1];
	int n = (int)strlen(a), m = (int)strlen(b);

	if (n >= WORD_MAX || m >= WORD_MAX || n - m > DISTANCE || m - n > DISTANCE)
		return DISTANCE + 1;
	for (int k = 0; k <= m; k++)
		rows[0][k] = k;
	for (int i = 1; i <= n; i++) {
		int *row = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		row[0] = i;
		for (int k = 1; k <= m; k++) {
			int best = last[k - 1] + (a[i - 1] != b[k - 1]);

			best = last[k] + 1 < best ? last[k] + 1 : best;
			best = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    before[k - 2] + 1 < best)
				best = before[k - 2] + 1;
			row[k] = best;
		}
	}
	return rows[n % 3][m];
}

const char *help_nearest(const char *word, const char *const *words, size_t n_words)
{
	const char *found = NULL;
	int best = DISTANCE + 1;

	/* A short word with half of it changed is another word. */
	if ((int)strlen(word) <= DISTANCE)
		best = DISTANCE;
	for (size_t i = 0; i < n_words; i++) {
		int d = distance(word, words[i]);

		if (d < best) {
			best = d;
			found = words[i];
		}
	}
	return best == 0 ? NULL : found;
}

/* ---- the parts of a text ---- */

static bool goes_on(const char *line, enum part of)
{
	size_t blanks = strspn(line, " ");

	if (of == PART_USAGE)
		return blanks > 0 && strncmp(line, "       leat ", 12) != 0 && line[2] == ' ';
	return blanks > 2 && of != PART_TEXT;
}

static enum part part_of(const char *line, bool examples)
{
	if (strncmp(line, "usage:", 6) == 0 || strncmp(line, "       leat ", 12) == 0)
		return PART_USAGE;
	if (strncmp(line, "Example", 7) == 0)
		return strncmp(line, "Examples:\n", 10) == 0 ? PART_EXAMPLES : PART_EXAMPLE;
	if (strncmp(line, "  ", 2) != 0)
		return PART_TEXT;
	return examples ? PART_EXAMPLE : line[2] == '-' ? PART_OPTION : PART_VERB;
}

/* Reads the piece at *at, and moves *at after it. Returns false at the end. */
static bool next_piece(const char **at, bool *examples, struct piece *ret)
{
	const char *p = *at;

	if (*p == '\0')
		return false;
	ret->text = p;
	ret->part = part_of(p, *examples);
	*examples = ret->part == PART_EXAMPLES || (*examples && ret->part == PART_EXAMPLE);
	do {
		p += strcspn(p, "\n");
		p += *p == '\n';
	} while (*p != '\0' && *p != '\n' && goes_on(p, ret->part));
	ret->len = (size_t)(p - ret->text);
	*at = p;
	return true;
}

/* Gets the verbs that a piece is about, as in "leat NAME a|b" or " a, b WHAT". */
static size_t verbs_of(const struct command *c, const struct piece *piece,
		       char words[WORDS_MAX][WORD_MAX])
{
	const char *p = piece->text, *end = piece->text + piece->len;
	size_t n = 0;

	if (piece->part == PART_VERB) {
		p += 2;
	} else if (piece->part == PART_USAGE) {
		p += USAGE_PART + strlen("leat ") + strlen(c->name);
		if (p >= end || *p != ' ')
			return 0;
		p++;
	} else {
		return 0;
	}
	while (p < end && n < WORDS_MAX) {
		p = take_word(p, words[n]);
		/* An option or an argument is no verb. */
		if (words[n][0] == '\0' || words[n][0] == '-')
			break;
		n++;
		if (*p == '|')
			p++;
		else if (p[0] == ',' && p[1] == ' ')
			p += 2;
		else
			break;
	}
	return n;
}

static bool is_about(const struct command *c, const struct piece *piece, const char *verb)
{
	char words[WORDS_MAX][WORD_MAX];
	size_t n = verbs_of(c, piece, words);

	for (size_t i = 0; i < n; i++)
		if (strcmp(words[i], verb) == 0)
			return true;
	return false;
}

/* True if the piece lists verbs. Only a family has option_of; lines of this form in other texts
 * list other things. */
static bool names_verbs(const struct command *c, const struct piece *piece)
{
	return piece->part == PART_USAGE || (piece->part == PART_VERB && c->option_of != NULL);
}

bool help_has_verb(const struct command *c, const char *verb)
{
	const char *at = c->usage;
	bool examples = false;
	struct piece piece;

	while (next_piece(&at, &examples, &piece))
		if (names_verbs(c, &piece) && is_about(c, &piece, verb))
			return true;
	return false;
}

/* True if the piece contains the words, not as part of longer ones. */
static bool holds(const struct piece *piece, const char *words)
{
	size_t n = strlen(words);

	for (size_t i = 0; i + n <= piece->len; i++)
		if (strncmp(piece->text + i, words, n) == 0 && !is_word(piece->text[i + n]) &&
		    (i == 0 || !is_word(piece->text[i - 1])))
			return true;
	return false;
}

/* ---- printing ---- */

/* True if the option is of this verb, or no usage line names it. */
static bool knows_option(const struct command *c, const char *verb, const struct piece *option)
{
	char word[WORD_MAX];
	const char *at = c->usage;
	bool examples = false, said = false;
	struct piece piece;

	(void)take_word(option->text + 2, word);
	if (c->option_of != NULL)
		return c->option_of(verb, word + 2);
	while (next_piece(&at, &examples, &piece)) {
		if (piece.part != PART_USAGE || !holds(&piece, word))
			continue;
		if (is_about(c, &piece, verb))
			return true;
		said = true;
	}
	return !said;
}

static bool wanted(const struct command *c, const char *verb, const struct piece *piece)
{
	char words[64], list[WORDS_MAX][WORD_MAX];

	snprintf(words, sizeof(words), "%s %s", c->name, verb);
	switch (piece->part) {
	case PART_USAGE:
		/* Some usage lines are for all verbs. */
		return verbs_of(c, piece, list) == 0 || is_about(c, piece, verb);
	case PART_VERB:
		return is_about(c, piece, verb);
	case PART_OPTION:
		return knows_option(c, verb, piece);
	case PART_EXAMPLE:
		return holds(piece, words);
	default:
		return true;
	}
}

void help_print(const struct command *c, const char *verb, FILE *out)
{
	const char *at = c->usage;
	bool examples = false, first = true;
	struct piece piece, headline = {.len = 0};

	if (verb == NULL || !help_has_verb(c, verb)) {
		fputs(c->usage, out);
		return;
	}
	while (next_piece(&at, &examples, &piece)) {
		if (piece.part == PART_EXAMPLES) {
			headline = piece;
		} else if (wanted(c, verb, &piece)) {
			if (piece.part == PART_EXAMPLE)
				fprintf(out, "%.*s", (int)headline.len, headline.text);
			headline.len = piece.part == PART_EXAMPLE ? 0 : headline.len;
			if (piece.part == PART_USAGE && strncmp(piece.text, "usage:", 6) != 0 &&
			    first)
				fprintf(out, "usage: %.*s", (int)piece.len - USAGE_PART,
					piece.text + USAGE_PART);
			else
				fprintf(out, "%.*s", (int)piece.len, piece.text);
			first = first && piece.part != PART_USAGE;
		}
	}
	fprintf(out, "`leat %s --help` shows all its verbs.\n", c->name);
}

/* ---- wrong command lines ---- */

/* Lists the words of the usage text that begin with "--", or all verbs. */
static size_t known_words(const struct command *c, bool options, char words[WORDS_MAX][WORD_MAX])
{
	const char *at = c->usage;
	bool examples = false;
	struct piece piece;
	size_t n = 0;

	if (!options) {
		while (n < WORDS_MAX && next_piece(&at, &examples, &piece)) {
			char more[WORDS_MAX][WORD_MAX];
			size_t n_more = names_verbs(c, &piece) ? verbs_of(c, &piece, more) : 0;

			for (size_t i = 0; i < n_more && n < WORDS_MAX; i++)
				memcpy(words[n++], more[i], WORD_MAX);
		}
		return n;
	}
	while (n < WORDS_MAX && (at = strstr(at, "--")) != NULL) {
		at = take_word(at, words[n]);
		n += words[n][2] != '\0';
	}
	return n;
}

static bool explain_option(const struct command *c, int argc, char **argv, char *buf, size_t size)
{
	char words[WORDS_MAX][WORD_MAX];
	const char *list[WORDS_MAX], *near;
	size_t n = known_words(c, true, words);

	for (size_t i = 0; i < n; i++)
		list[i] = words[i];
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		char given[WORD_MAX];
		size_t len = strcspn(argv[i], "="), k = 0;

		if (strncmp(argv[i], "--", 2) != 0 || len >= sizeof(given))
			continue;
		snprintf(given, sizeof(given), "%.*s", (int)len, argv[i]);
		while (k < n && strncmp(list[k], given, len) != 0)
			k++;
		if (k < n)
			continue; /* it is an option, or the beginning of one */
		near = help_nearest(given, list, n);
		snprintf(buf, size, "unknown option '%s'%s%s%s", given,
			 near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
		return true;
	}
	/* The last word that getopt read. */
	if (argc > 0 && strncmp(argv[argc - 1], "--", 2) == 0 && !strchr(argv[argc - 1], '=')) {
		snprintf(buf, size, "option '%.60s' needs a value, or is not allowed here",
			 argv[argc - 1]);
		return true;
	}
	return false;
}

bool help_explain(const struct command *c, int argc, char **argv, const char *text, char *buf,
		  size_t size)
{
	char words[WORDS_MAX][WORD_MAX];
	const char *list[WORDS_MAX], *near;
	size_t n;

	if (strstr(text, "wrong options") != NULL)
		return explain_option(c, argc, argv, buf, size);
	if (argc < 1 || argv[0][0] == '-' || help_has_verb(c, argv[0]))
		return false;
	n = known_words(c, false, words);
	for (size_t i = 0; i < n; i++)
		list[i] = words[i];
	near = help_nearest(argv[0], list, n);
	if (near == NULL)
		return false;
	snprintf(buf, size, "unknown verb '%s': did you mean '%s'?", argv[0], near);
	return true;
}
