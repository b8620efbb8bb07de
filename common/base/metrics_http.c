/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics by libmicrohttpd, on a separate thread.
 *
 * A page may consist of several outputs of metrics_print (one per target, with different labels).
 * The format requires all samples of a name in one group under one HELP and TYPE, so the page is
 * regrouped here.
 */
#include "common/base/metrics_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/log.h"

#define METRICS_MAGIC   0x4d545253u
#define CONNECTIONS_MAX 16
#define IDLE_TIMEOUT_S  10

struct metrics_server {
	uint32_t magic;
	struct MHD_Daemon *daemon;
	int (*render)(void *arg, char **ret_text, size_t *ret_len);
	void *arg;
	int port;
};

/* The text from one "# HELP" to the next. */
struct block {
	const char *start, *end;
	bool done;
};

static bool same_name(const struct block *a, const struct block *b)
{
	static const size_t skip = sizeof("# HELP ") - 1;
	size_t n = strcspn(a->start + skip, " \n");
	return strncmp(a->start + skip, b->start + skip, n + 1) == 0;
}

static void write_block(FILE *out, const struct block *b, bool with_head)
{
	for (const char *line = b->start, *next; line < b->end; line = next) {
		next = memchr(line, '\n', (size_t)(b->end - line));
		next = next != NULL ? next + 1 : b->end;
		if (with_head || *line != '#')
			fwrite(line, 1, (size_t)(next - line), out);
	}
}

static size_t split(const char *text, struct block *blocks, size_t max)
{
	size_t n = 0;
	const char *at = strncmp(text, "# HELP ", 7) == 0 ? text : strstr(text, "\n# HELP ");
	while (at != NULL && n < max) {
		if (*at == '\n')
			at++;
		const char *next = strstr(at, "\n# HELP ");
		const char *end = next != NULL ? next + 1 : at + strlen(at);
		blocks[n++] = (struct block){.start = at, .end = end};
		at = next;
	}
	return n;
}

/* Groups the samples by name. Takes over text. Without memory returns it unchanged: most readers
 * accept that. */
static char *regroup(char *text, size_t *len)
{
	size_t max = 1;
	for (const char *p = text; (p = strstr(p, "# HELP ")) != NULL; p++)
		max++;
	struct block *blocks = calloc(max, sizeof(*blocks));
	char *grouped = NULL;
	size_t grouped_len = 0;
	FILE *out = blocks != NULL ? open_memstream(&grouped, &grouped_len) : NULL;
	if (out == NULL) {
		free(blocks);
		return text;
	}
	size_t n = split(text, blocks, max);
	for (size_t i = 0; i < n; i++) {
		if (blocks[i].done)
			continue;
		write_block(out, &blocks[i], true);
		for (size_t k = i + 1; k < n; k++) {
			if (!blocks[k].done && same_name(&blocks[i], &blocks[k])) {
				write_block(out, &blocks[k], false);
				blocks[k].done = true;
			}
		}
	}
	free(blocks);
	if (fclose(out) != 0) {
		free(grouped);
		return text;
	}
	free(text);
	*len = grouped_len;
	return grouped;
}

static enum MHD_Result respond(struct MHD_Connection *c, unsigned int code, char *text, size_t len,
			       enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);
	if (r == NULL) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
				"text/plain; version=0.0.4; charset=utf-8");
	enum MHD_Result rc = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result respond_literal(struct MHD_Connection *c, unsigned int code,
				       const char *text)
{
	return respond(c, code, (char *)text, strlen(text), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **state)
{
	struct metrics_server *s = CAST_OBJ(arg, struct metrics_server, METRICS_MAGIC);
	(void)version;
	(void)upload;
	(void)upload_size;
	(void)state;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return respond_literal(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	if (strcmp(url, "/metrics") != 0)
		return respond_literal(c, MHD_HTTP_NOT_FOUND, "the page is /metrics\n");
	char *text = NULL;
	size_t len = 0;
	if (s->render(s->arg, &text, &len) < 0)
		return respond_literal(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "no metrics now\n");
	text = regroup(text, &len);
	return respond(c, MHD_HTTP_OK, text, len, MHD_RESPMEM_MUST_FREE);
}

/* Resolves "host:port", "[::1]:port", ":port". */
static int resolve(const char *addr, struct addrinfo **ret_info)
{
	char host[256];
	const char *colon = strrchr(addr, ':');
	if (colon == NULL || (size_t)(colon - addr) >= sizeof(host))
		return -LE_INVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - addr), addr);
	char *name = host;
	size_t n = strlen(host);
	if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		name = host + 1;
	}
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
				 .ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM};
	if (getaddrinfo(*name != '\0' ? name : NULL, colon + 1, &hints, ret_info) != 0)
		return -LE_INVAL;
	return 0;
}

static int listen_on(const struct addrinfo *ai, int *ret_port, int *ret_fd)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return status_from_errno(errno);
	int one = 1;
	struct sockaddr_storage sa;
	socklen_t sa_len = sizeof(sa);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, CONNECTIONS_MAX) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &sa_len) < 0) {
		int rc = status_from_errno(errno);
		close(fd);
		return rc;
	}
	char port[16] = "0";
	getnameinfo((struct sockaddr *)&sa, sa_len, NULL, 0, port, sizeof(port), NI_NUMERICSERV);
	*ret_port = atoi(port);
	*ret_fd = fd;
	return 0;
}

int metrics_server_start(const char *addr,
			 int (*render)(void *arg, char **ret_text, size_t *ret_len), void *arg,
			 struct metrics_server **ret_server)
{
	struct addrinfo *info;
	TRY(resolve(addr, &info));
	struct metrics_server *s = calloc(1, sizeof(*s));
	int fd = -1;
	int rc = s == NULL ? -LE_NOMEM : listen_on(info, &s->port, &fd);
	freeaddrinfo(info);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->magic = METRICS_MAGIC;
	s->render = render;
	s->arg = arg;
	s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL,
				     on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
				     MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS_MAX,
				     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_TIMEOUT_S,
				     MHD_OPTION_END);
	if (s->daemon == NULL) {
		close(fd);
		free(s);
		return -LE_NOMEM;
	}
	*ret_server = s;
	return 0;
}

int metrics_server_port(const struct metrics_server *s)
{
	return s->port;
}

struct metrics_server *metrics_server_try(const char *addr,
					  int (*render)(void *arg, char **ret_text,
							size_t *ret_len),
					  void *arg)
{
	struct metrics_server *s = NULL;
	int rc = addr[0] != '\0' ? metrics_server_start(addr, render, arg, &s) : 0;

	if (rc < 0)
		log_warn("no /metrics page at %s: %s", addr, status_text(rc));
	return s;
}

void metrics_server_stop(struct metrics_server *s)
{
	if (s == NULL)
		return;
	MHD_stop_daemon(s->daemon);
	free(s);
}
