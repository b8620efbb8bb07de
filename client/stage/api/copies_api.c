/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls for existing copies: waiting, pins, leases of jobs, eviction. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/dataset/beneath.h"
#include "client/stage/in/admission.h"
#include "client/stage/job/job.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/copies_gc.h"

#define POLL_US  200000u
#define GRACE_US 10000000u /* how long to wait for a process that is about to begin */

struct call {
	struct stage_io io;
	const char *to, *what;
	enum copies_mark_what how;
	struct copies_mark mark;
	struct gc_options gc;
	int milestone;
	uint64_t deadline_us;
	const volatile int *cancel;
	struct leat_stage_copy *copy;
	int code, rc;
};

static int call_run(struct call *c, struct leat_fs *fs, void (*fn)(void *arg))
{
	TRY(io_init(&c->io, fs, "leat-stage"));
	int rc = io_run(&c->io, fn, c);
	io_fini(&c->io);
	return rc < 0 ? rc : c->rc;
}

/* ---- marks ---- */

static void mark_fiber(void *arg)
{
	struct call *c = arg;
	if (c->what)
		c->rc = copies_mark(&c->io, c->to, c->what, c->how, &c->mark);
	else
		c->rc = copies_release_all(&c->io, c->to, c->mark.job);
}

static int mark(const char *to, const char *what, enum copies_mark_what how, const char *job,
		uint64_t ttl_s)
{
	struct call c = {.to = to, .what = what, .how = how, .mark = {job, ttl_s}};
	return call_run(&c, NULL, mark_fiber);
}

int leat_stage_pin(const char *to, const char *what, int on)
{
	return mark(to, what, on ? MARK_PIN : MARK_UNPIN, NULL, 0);
}

int leat_stage_cancel(const char *to, const char *what)
{
	return mark(to, what, MARK_CANCEL, NULL, 0);
}

int leat_stage_lease_job(const char *to, const char *what, const char *job, uint64_t ttl_s)
{
	return mark(to, what, MARK_LEASE, job, ttl_s);
}

int leat_stage_release_job(const char *to, const char *what, const char *job)
{
	return mark(to, what, MARK_RELEASE, job, 0);
}

/* ---- eviction ---- */

static void gc_fiber(void *arg)
{
	struct call *c = arg;
	c->rc = copies_gc(&c->io, c->to, &c->gc);
}

int leat_stage_gc(const struct leat_stage_gc_options *opts, uint64_t *ret_bytes)
{
	struct leat_stage_gc_options o;
	struct call c = {0};
	struct_take(&o, sizeof(o), opts);
	uint64_t space = stage_free_bytes(o.to, o.more_dirs);
	c.to = o.to;
	c.gc = (struct gc_options){.more_dirs = o.more_dirs,
				   .bytes_missing = o.bytes > space ? o.bytes - space : 0,
				   .capacity = o.capacity,
				   .dry_run = o.dry_run,
				   .each = o.each,
				   .arg = o.arg};
	int rc = call_run(&c, o.fs, gc_fiber);
	*ret_bytes = c.gc.bytes_removed;
	if (o.ret_missing) {
		space = o.dry_run ? space + *ret_bytes : stage_free_bytes(o.to, o.more_dirs);
		*o.ret_missing = o.bytes > space ? o.bytes - space : 0;
	}
	return rc;
}

/* ---- waiting ---- */

/* Returns the code of the copy's state; -1: keep waiting. */
static int code_now(const struct call *c)
{
	switch (c->copy->state) {
	case LEAT_COPY_READY:
	case LEAT_COPY_STALE:
	case LEAT_COPY_SHARED:
		return LEAT_STAGE_DONE;
	case LEAT_COPY_STREAMABLE:
		return c->milestone ? LEAT_STAGE_DONE : -1;
	case LEAT_COPY_STAGING:
	case LEAT_COPY_RESERVED:
		return c->milestone == LEAT_STAGE_RESERVED ? LEAT_STAGE_DONE : -1;
	case LEAT_COPY_PLANNED:
		return -1;
	case LEAT_COPY_FAILED:
		return c->copy->fail_code ? c->copy->fail_code : LEAT_STAGE_INTERNAL;
	case LEAT_COPY_CANCELLED:
		return LEAT_STAGE_CANCELLED;
	case LEAT_COPY_DEGRADED:
		return LEAT_STAGE_LOCAL_CORRUPT;
	default:
		return LEAT_STAGE_NOT_READY;
	}
}

static void wait_fiber(void *arg)
{
	struct call *c = arg;
	uint64_t grace_us = loop_now_us() + GRACE_US;
	for (;;) {
		c->rc = copies_find(&c->io, c->to, c->what, c->copy);
		/* If the copy is missing, its process may be about to begin. */
		c->code = c->rc == 0 ? code_now(c) : -1;
		if (c->code >= 0 || (c->rc < 0 && c->rc != -LE_NOENT))
			return;
		if (c->cancel && *c->cancel)
			c->code = LEAT_STAGE_CANCELLED;
		else if (loop_now_us() >= c->deadline_us)
			c->code = LEAT_STAGE_TIMEOUT;
		else if (c->rc == -LE_NOENT && loop_now_us() >= grace_us)
			c->code = LEAT_STAGE_NOT_READY;
		if (c->code >= 0) {
			c->rc = 0;
			return;
		}
		int rc = fiber_sleep_us(POLL_US);
		(void)rc;
	}
}

int leat_stage_wait(const char *to, const char *what, const struct leat_stage_wait_options *opts,
		    int *ret_code, struct leat_stage_copy *ret_copy)
{
	struct leat_stage_wait_options o;
	struct_take(&o, sizeof(o), opts);
	struct call c = {.to = to, .what = what, .milestone = o.milestone, .cancel = o.cancel};
	c.copy = calloc(1, sizeof(*c.copy));
	if (!c.copy)
		return -LE_NOMEM;
	int rc = io_init(&c.io, NULL, "leat-stage");
	if (rc == 0) {
		c.deadline_us = o.timeout_ms ? env_now_us(c.io.env) + (uint64_t)o.timeout_ms * 1000
					     : UINT64_MAX;
		rc = io_run(&c.io, wait_fiber, &c);
		io_fini(&c.io);
	}
	rc = rc < 0 ? rc : c.rc;
	if (rc == 0)
		*ret_code = c.code;
	if (rc == 0 && ret_copy)
		struct_give(ret_copy, c.copy, sizeof(*c.copy));
	free(c.copy);
	return rc;
}

/* ---- events ---- */

int leat_stage_events(const char *to)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/.leat/events", to);
	return n >= (int)sizeof(path) ? -LE_NAMETOOLONG : beneath_open(NULL, path, O_RDONLY, 0);
}
