/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"

#define MESSAGE_MAX 512
#define STATUS_MAX  256
/* The interval without a watchdog, and before notify_ready. */
#define ALIVE_US 10000000u
/* More than several intervals of notify_alive, on a busy machine. */
#define START_MORE "EXTEND_TIMEOUT_USEC=60000000"

enum phase { PHASE_STARTING, PHASE_READY, PHASE_RELOADING, PHASE_STOPPING };

/* All but fd and watchdog_us is guarded by lock. */
static struct {
	pthread_mutex_t lock;
	int fd; /* -1: no manager listens */
	struct sockaddr_un addr;
	socklen_t addr_len;
	uint64_t watchdog_us;
	enum phase phase;
	bool phase_due, status_due; /* not sent yet */
	char status[STATUS_MAX];
} to = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static uint64_t number(const char *name)
{
	const char *text = getenv(name);

	return text != NULL ? strtoull(text, NULL, 10) : 0;
}

void notify_init(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	uint64_t pid = number("WATCHDOG_PID");
	size_t n = path != NULL ? strlen(path) : 0;

	if (n == 0)
		return;
	if ((path[0] != '/' && path[0] != '@') || n >= sizeof(to.addr.sun_path)) {
		log_warn("NOTIFY_SOCKET=%s is not the path of a socket: the service manager gets "
			 "no notifications",
			 path);
		return;
	}
	to.addr.sun_family = AF_UNIX;
	memcpy(to.addr.sun_path, path, n);
	if (path[0] == '@')
		to.addr.sun_path[0] = '\0';
	to.addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	to.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (to.fd < 0)
		log_warn("the service manager gets no notifications: %s", strerror(errno));
	if (pid == 0 || pid == (uint64_t)getpid())
		to.watchdog_us = number("WATCHDOG_USEC");
}

bool notify_wanted(void)
{
	return to.fd >= 0;
}

static size_t add_phase(char *text, size_t size)
{
	struct timespec ts;

	switch (to.phase) {
	case PHASE_READY:
		return (size_t)snprintf(text, size, "READY=1\n");
	case PHASE_STOPPING:
		return (size_t)snprintf(text, size, "STOPPING=1\n");
	case PHASE_RELOADING:
		clock_gettime(CLOCK_MONOTONIC, &ts);
		return (size_t)snprintf(text, size, "RELOADING=1\nMONOTONIC_USEC=%lld\n",
					(long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000);
	case PHASE_STARTING:
		break;
	}
	return 0;
}

/* Sends the messages that are due, then more. Called with the lock. */
static void send_due(const char *more)
{
	char text[MESSAGE_MAX];
	size_t n = 0;

	if (to.phase_due)
		n = add_phase(text, sizeof(text));
	if (to.status_due)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "STATUS=%s\n", to.status);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", more);
	if (n == 0)
		return;
	if (sendto(to.fd, text, n, MSG_NOSIGNAL, (struct sockaddr *)&to.addr, to.addr_len) ==
	    (ssize_t)n)
		to.phase_due = to.status_due = false;
}

static void enter(enum phase phase)
{
	if (to.fd < 0)
		return;
	pthread_mutex_lock(&to.lock);
	if (to.phase != PHASE_STOPPING) {
		to.phase_due |= to.phase != phase;
		to.phase = phase;
	}
	send_due("");
	pthread_mutex_unlock(&to.lock);
}

void notify_ready(void)
{
	enter(PHASE_READY);
}

void notify_reloading(void)
{
	enter(PHASE_RELOADING);
}

void notify_stopping(void)
{
	enter(PHASE_STOPPING);
}

void notify_status(const char *fmt, ...)
{
	char text[STATUS_MAX];
	va_list ap;

	if (to.fd < 0)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A line break would begin another message. */
	for (char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	pthread_mutex_lock(&to.lock);
	if (strcmp(text, to.status) != 0) {
		snprintf(to.status, sizeof(to.status), "%s", text);
		to.status_due = true;
	}
	send_due("");
	pthread_mutex_unlock(&to.lock);
}

void notify_alive(void)
{
	if (to.fd < 0)
		return;
	pthread_mutex_lock(&to.lock);
	if (to.phase == PHASE_STARTING)
		send_due(START_MORE);
	else
		send_due(to.watchdog_us > 0 ? "WATCHDOG=1" : "");
	pthread_mutex_unlock(&to.lock);
}

uint64_t notify_alive_us(void)
{
	uint64_t us = to.watchdog_us / 3;

	return us == 0 || us > ALIVE_US ? ALIVE_US : us;
}

uint64_t notify_watchdog_us(void)
{
	return to.watchdog_us;
}
