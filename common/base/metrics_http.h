/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of metrics over HTTP.
 */
#ifndef LEAT_COMMON_BASE_METRICS_HTTP_H
#define LEAT_COMMON_BASE_METRICS_HTTP_H

#include <stddef.h>

#include "common/base/status.h"

/* Starts the HTTP page: GET /metrics calls render, on the thread of the server. render returns a
 * malloc'd text, and must be thread-safe. Uses libmicrohttpd. addr "host:port"; port 0 picks
 * one. */
struct metrics_server;
int metrics_server_start(const char *addr,
			 int (*render)(void *arg, char **ret_text, size_t *ret_len), void *arg,
			 struct metrics_server **ret_server) CHECK_RESULT;
/* Like metrics_server_start(), for a daemon, which runs without a page if that fails: then logs a
 * warning and returns NULL. Returns NULL also if addr is empty. */
struct metrics_server *metrics_server_try(const char *addr,
					  int (*render)(void *arg, char **ret_text,
							size_t *ret_len),
					  void *arg);
int metrics_server_port(const struct metrics_server *s);
void metrics_server_stop(struct metrics_server *s);

#endif
