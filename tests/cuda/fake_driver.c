/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver without a device: see README.md. One lock for everything; each stream has a thread
 * that executes its operations in order.
 */
#include "tests/cuda/fake_driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT     __attribute__((visibility("default")))
#define DEVICES    2
#define RANGES_MAX 256u
#define NAMES_MAX  32u

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	NOT_READY = 600,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713
};

enum op_kind {
	OP_COPY,
	OP_RECORD,
	OP_WAIT,
	OP_STOP
};

struct event {
	struct event *next;      /* events are never freed: an operation may still refer to one */
	uint64_t recorded, done; /* counts */
	void *ctx;
	bool alive;
};

struct op {
	enum op_kind kind;
	struct op *next;
	void *dst;
	const void *src;
	size_t len;
	unsigned int us; /* its extra duration */
	struct event *event;
	uint64_t number; /* of the event's records */
};

struct stream {
	pthread_t thread;
	struct op *first, **last;
	struct op *running;
	void *ctx;
	bool alive;
};

struct range {
	uintptr_t at;
	size_t len;
};

struct context {
	int device;
	unsigned int retained;
	struct stream *legacy; /* the stream NULL */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool started;
	unsigned int delay_us, delay_up_us, violations, n_streams, n_events;
	struct context contexts[DEVICES];
	struct range allocated[RANGES_MAX], registered[RANGES_MAX];
	struct {
		const char *symbol;
		unsigned int calls, fail_at;
		int error;
	} names[NAMES_MAX];
	struct stream *all[RANGES_MAX];
	unsigned int n_all;
	struct event *events;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

#define STACK_MAX 8
static __thread struct context *stack[STACK_MAX];
static __thread int depth;

/* ---- called with the lock ---- */

static int violation(const char *symbol, const char *what, int error)
{
	fake.violations++;
	fprintf(stderr, "fake CUDA: %s: %s\n", symbol, what);
	return error;
}

static unsigned int name_of(const char *symbol)
{
	for (unsigned int i = 0; i < NAMES_MAX; i++) {
		if (!fake.names[i].symbol)
			fake.names[i].symbol = strdup(symbol);
		if (strcmp(fake.names[i].symbol, symbol) == 0)
			return i;
	}
	abort();
}

/* Called first in every function. */
static int called(const char *symbol, bool needs_context)
{
	unsigned int i = name_of(symbol);

	fake.names[i].calls++;
	if (fake.names[i].fail_at && --fake.names[i].fail_at == 0)
		return fake.names[i].error;
	if (!fake.started && strcmp(symbol, "cuInit") != 0)
		return NOT_INITIALIZED;
	if (needs_context && depth == 0)
		return violation(symbol, "no context is current", INVALID_CONTEXT);
	return OK;
}

static struct range *find_range(struct range *list, uintptr_t at, size_t len)
{
	for (unsigned int i = 0; i < RANGES_MAX; i++) {
		struct range *r = &list[i];
		if (r->len && at >= r->at && at + len <= r->at + r->len)
			return r;
	}
	return NULL;
}

static void add_range(struct range *list, uintptr_t at, size_t len)
{
	for (unsigned int i = 0; i < RANGES_MAX; i++) {
		if (list[i].len == 0) {
			list[i] = (struct range){at, len};
			return;
		}
	}
	abort();
}

static bool touches(const struct op *o, const struct range *r)
{
	uintptr_t src = (uintptr_t)o->src, dst = (uintptr_t)o->dst;

	return o->kind == OP_COPY && ((src < r->at + r->len && src + o->len > r->at) ||
				      (dst < r->at + r->len && dst + o->len > r->at));
}

/* Returns whether an operation that is not done uses this memory. */
static bool in_use(const struct range *r)
{
	for (unsigned int i = 0; i < fake.n_all; i++) {
		const struct stream *s = fake.all[i];
		if (s->running && touches(s->running, r))
			return true;
		for (const struct op *o = s->first; o; o = o->next) {
			if (touches(o, r))
				return true;
		}
	}
	return false;
}

/* ---- streams ---- */

static void run_op(struct op *o)
{
	if (o->kind == OP_WAIT) {
		while (o->event->done < o->number)
			pthread_cond_wait(&fake.moved, &fake.lock);
	} else if (o->kind == OP_RECORD) {
		o->event->done = o->number > o->event->done ? o->number : o->event->done;
	} else if (o->kind == OP_COPY) {
		unsigned int us = fake.delay_us + o->us;
		pthread_mutex_unlock(&fake.lock);
		if (us)
			usleep(us);
		memcpy(o->dst, o->src, o->len);
		pthread_mutex_lock(&fake.lock);
	}
}

static void *run_stream(void *arg)
{
	struct stream *s = arg;
	bool stop = false;

	pthread_mutex_lock(&fake.lock);
	while (!stop) {
		while (!s->first)
			pthread_cond_wait(&fake.moved, &fake.lock);
		struct op *o = s->first;
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		s->running = o;
		run_op(o);
		s->running = NULL;
		stop = o->kind == OP_STOP;
		free(o);
		pthread_cond_broadcast(&fake.moved);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

static struct stream *new_stream(void *ctx)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s || fake.n_all == RANGES_MAX)
		abort();
	s->last = &s->first;
	s->ctx = ctx;
	s->alive = true;
	fake.all[fake.n_all++] = s;
	if (pthread_create(&s->thread, NULL, run_stream, s) != 0 || pthread_detach(s->thread) != 0)
		abort();
	return s;
}

/* Returns a stream of the current context, or NULL. */
static struct stream *stream_of(void *handle)
{
	struct context *ctx = stack[depth - 1];

	if (!handle) {
		if (!ctx->legacy)
			ctx->legacy = new_stream(ctx);
		return ctx->legacy;
	}
	for (unsigned int i = 0; i < fake.n_all; i++) {
		if (fake.all[i] == handle)
			return fake.all[i]->alive && fake.all[i]->ctx == ctx ? fake.all[i] : NULL;
	}
	return NULL;
}

static void push_op(struct stream *s, struct op o)
{
	struct op *p = malloc(sizeof(*p));

	if (!p)
		abort();
	*p = o;
	p->next = NULL;
	*s->last = p;
	s->last = &p->next;
	pthread_cond_broadcast(&fake.moved);
}

static bool is_idle(const struct stream *s)
{
	return !s->first && !s->running;
}

/* ---- controls of tests ---- */

EXPORT void fake_cuda_delay(unsigned int us)
{
	pthread_mutex_lock(&fake.lock);
	fake.delay_us = us;
	pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_delay_up(unsigned int us)
{
	pthread_mutex_lock(&fake.lock);
	fake.delay_up_us = us;
	pthread_mutex_unlock(&fake.lock);
}

EXPORT void fake_cuda_fail(const char *symbol, unsigned int nth, int error)
{
	pthread_mutex_lock(&fake.lock);
	unsigned int i = name_of(symbol);
	fake.names[i].fail_at = nth;
	fake.names[i].error = error;
	pthread_mutex_unlock(&fake.lock);
}

EXPORT unsigned int fake_cuda_calls(const char *symbol)
{
	pthread_mutex_lock(&fake.lock);
	unsigned int n = fake.names[name_of(symbol)].calls;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

EXPORT unsigned int fake_cuda_violations(void)
{
	pthread_mutex_lock(&fake.lock);
	unsigned int n = fake.violations;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

static uint64_t sum(const struct range *list, unsigned int *ret_n)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&fake.lock);
	for (unsigned int i = 0; i < RANGES_MAX; i++) {
		bytes += list[i].len;
		*ret_n += list[i].len > 0;
	}
	pthread_mutex_unlock(&fake.lock);
	return bytes;
}

EXPORT uint64_t fake_cuda_allocated(void)
{
	unsigned int n = 0;
	return sum(fake.allocated, &n);
}

EXPORT uint64_t fake_cuda_registered(void)
{
	unsigned int n = 0;
	return sum(fake.registered, &n);
}

EXPORT unsigned int fake_cuda_left(void)
{
	unsigned int n = 0;

	sum(fake.allocated, &n);
	sum(fake.registered, &n);
	pthread_mutex_lock(&fake.lock);
	n += fake.n_streams + fake.n_events;
	for (int i = 0; i < DEVICES; i++)
		n += fake.contexts[i].retained;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

EXPORT int fake_cuda_read(void *ret_bytes, uint64_t src, size_t len, void *stream)
{
	int rc = OK;

	pthread_mutex_lock(&fake.lock);
	struct stream *s = depth ? stream_of(stream) : NULL;
	if (!s || !find_range(fake.allocated, (uintptr_t)src, len))
		rc = violation("fake_cuda_read", "no such memory or stream", INVALID_VALUE);
	else
		push_op(s, (struct op){.kind = OP_COPY,
				       .dst = ret_bytes,
				       .src = (const void *)(uintptr_t)src,
				       .len = len});
	pthread_mutex_unlock(&fake.lock);
	return rc;
}

EXPORT int fake_cuda_is_device(const void *at, size_t len)
{
	pthread_mutex_lock(&fake.lock);
	int is = depth > 0 && find_range(fake.allocated, (uintptr_t)at, len) != NULL;
	pthread_mutex_unlock(&fake.lock);
	return is;
}

EXPORT int fake_cuda_write(void *dst, const void *src, size_t len)
{
	struct range r = {(uintptr_t)dst, len};
	int rc = -1;

	pthread_mutex_lock(&fake.lock);
	if (depth > 0 && find_range(fake.allocated, r.at, len) && !in_use(&r)) {
		memcpy(dst, src, len);
		rc = 0;
	}
	pthread_mutex_unlock(&fake.lock);
	return rc;
}

/* ---- the driver ---- */

/* CALL(parameters of called) { body that sets rc } END */
#define CALL(symbol, needs_context)                                                                \
	pthread_mutex_lock(&fake.lock);                                                            \
	int rc = called(symbol, needs_context);                                                    \
	if (rc == OK)
#define END                                                                                        \
	pthread_mutex_unlock(&fake.lock);                                                          \
	return rc;

int cuInit(unsigned int flags);
EXPORT int cuInit(unsigned int flags)
{
	CALL("cuInit", false)
	{
		rc = flags ? INVALID_VALUE : OK;
		fake.started |= rc == OK;
	}
	END
}

int cuGetErrorString(int error, const char **ret_text);
EXPORT int cuGetErrorString(int error, const char **ret_text)
{
	*ret_text = error == OUT_OF_MEMORY ? "out of memory" : "an error that a test asked for";
	return OK;
}

int cuDeviceGetCount(int *ret_count);
EXPORT int cuDeviceGetCount(int *ret_count)
{
	CALL("cuDeviceGetCount", false) *ret_count = DEVICES;
	END
}

int cuDeviceGet(int *ret_device, int ordinal);
EXPORT int cuDeviceGet(int *ret_device, int ordinal)
{
	CALL("cuDeviceGet", false)
	{
		rc = ordinal < 0 || ordinal >= DEVICES ? INVALID_DEVICE : OK;
		*ret_device = ordinal;
	}
	END
}

int cuDevicePrimaryCtxRetain(void **ret_ctx, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **ret_ctx, int device)
{
	CALL("cuDevicePrimaryCtxRetain", false)
	{
		fake.contexts[device].device = device;
		fake.contexts[device].retained++;
		*ret_ctx = &fake.contexts[device];
	}
	END
}

int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	CALL("cuDevicePrimaryCtxRelease_v2", false)
	{
		if (fake.contexts[device].retained == 0)
			rc = violation("cuDevicePrimaryCtxRelease_v2", "not retained",
				       INVALID_CONTEXT);
		else
			fake.contexts[device].retained--;
	}
	END
}

int cuCtxPushCurrent_v2(void *ctx);
EXPORT int cuCtxPushCurrent_v2(void *ctx)
{
	struct context *c = ctx;

	CALL("cuCtxPushCurrent_v2", false)
	{
		if (!c || c->retained == 0 || depth == STACK_MAX)
			rc = violation("cuCtxPushCurrent_v2", "no such context", INVALID_CONTEXT);
		else
			stack[depth++] = c;
	}
	END
}

int cuCtxPopCurrent_v2(void **ret_ctx);
EXPORT int cuCtxPopCurrent_v2(void **ret_ctx)
{
	CALL("cuCtxPopCurrent_v2", true) *ret_ctx = stack[--depth];
	END
}

int cuCtxGetCurrent(void **ret_ctx);
EXPORT int cuCtxGetCurrent(void **ret_ctx)
{
	CALL("cuCtxGetCurrent", false) *ret_ctx = depth ? stack[depth - 1] : NULL;
	END
}

int cuCtxGetDevice(int *ret_device);
EXPORT int cuCtxGetDevice(int *ret_device)
{
	CALL("cuCtxGetDevice", true) *ret_device = stack[depth - 1]->device;
	END
}

int cuCtxSynchronize(void);
EXPORT int cuCtxSynchronize(void)
{
	CALL("cuCtxSynchronize", true)
	{
		for (unsigned int i = 0; i < fake.n_all; i++) {
			while (fake.all[i]->ctx == stack[depth - 1] && !is_idle(fake.all[i]))
				pthread_cond_wait(&fake.moved, &fake.lock);
		}
	}
	END
}

int cuMemAlloc_v2(uint64_t *ret_ptr, size_t len);
EXPORT int cuMemAlloc_v2(uint64_t *ret_ptr, size_t len)
{
	CALL("cuMemAlloc_v2", true)
	{
		void *p = malloc(len);
		if (!p || len == 0) {
			rc = OUT_OF_MEMORY;
		} else {
			memset(p, 0xee, len); /* as in a device's memory: not zeros */
			add_range(fake.allocated, (uintptr_t)p, len);
			*ret_ptr = (uintptr_t)p;
		}
	}
	END
}

int cuMemFree_v2(uint64_t ptr);
EXPORT int cuMemFree_v2(uint64_t ptr)
{
	CALL("cuMemFree_v2", true)
	{
		struct range *r = find_range(fake.allocated, (uintptr_t)ptr, 1);
		if (!r || r->at != ptr) {
			rc = violation("cuMemFree_v2", "not allocated", INVALID_VALUE);
		} else {
			if (in_use(r))
				violation("cuMemFree_v2", "a copy is under way", OK);
			else
				free((void *)r->at);
			*r = (struct range){0, 0};
		}
	}
	END
}

int cuMemHostRegister_v2(void *p, size_t len, unsigned int flags);
EXPORT int cuMemHostRegister_v2(void *p, size_t len, unsigned int flags)
{
	CALL("cuMemHostRegister_v2", true)
	{
		if ((uintptr_t)p % 4096 || len % 4096 || flags != 1)
			rc = violation("cuMemHostRegister_v2", "not whole pages, or not portable",
				       INVALID_VALUE);
		else if (find_range(fake.registered, (uintptr_t)p, 1) ||
			 find_range(fake.registered, (uintptr_t)p + len - 1, 1))
			rc = violation("cuMemHostRegister_v2", "registered already",
				       ALREADY_REGISTERED);
		else
			add_range(fake.registered, (uintptr_t)p, len);
	}
	END
}

int cuMemHostUnregister(void *p);
EXPORT int cuMemHostUnregister(void *p)
{
	CALL("cuMemHostUnregister", true)
	{
		struct range *r = find_range(fake.registered, (uintptr_t)p, 1);
		if (!r || r->at != (uintptr_t)p) {
			rc = violation("cuMemHostUnregister", "not registered", NOT_REGISTERED);
		} else {
			if (in_use(r))
				violation("cuMemHostUnregister", "a copy is under way", OK);
			/* Must still be mapped. */
			*(volatile char *)p = *(volatile char *)p;
			*r = (struct range){0, 0};
		}
	}
	END
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t len, void *stream);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t len, void *stream)
{
	CALL("cuMemcpyHtoDAsync_v2", true)
	{
		struct stream *s = stream_of(stream);
		if (!s || !find_range(fake.allocated, (uintptr_t)dst, len))
			rc = violation("cuMemcpyHtoDAsync_v2", "no such memory or stream",
				       INVALID_VALUE);
		else
			push_op(s, (struct op){.kind = OP_COPY,
					       .dst = (void *)(uintptr_t)dst,
					       .src = src,
					       .len = len,
					       .us = fake.delay_up_us});
		/* A copy from memory that is not pinned returns when the driver has read it. */
		while (rc == OK && !find_range(fake.registered, (uintptr_t)src, len) && !is_idle(s))
			pthread_cond_wait(&fake.moved, &fake.lock);
	}
	END
}

int cuStreamCreate(void **ret_stream, unsigned int flags);
EXPORT int cuStreamCreate(void **ret_stream, unsigned int flags)
{
	CALL("cuStreamCreate", true)
	{
		(void)flags;
		*ret_stream = new_stream(stack[depth - 1]);
		fake.n_streams++;
	}
	END
}

int cuStreamDestroy_v2(void *stream);
EXPORT int cuStreamDestroy_v2(void *stream)
{
	CALL("cuStreamDestroy_v2", true)
	{
		struct stream *s = stream ? stream_of(stream) : NULL;
		if (!s) {
			rc = violation("cuStreamDestroy_v2", "no such stream", INVALID_HANDLE);
		} else {
			s->alive = false;
			fake.n_streams--;
			push_op(s, (struct op){.kind = OP_STOP});
		}
	}
	END
}

int cuStreamSynchronize(void *stream);
EXPORT int cuStreamSynchronize(void *stream)
{
	CALL("cuStreamSynchronize", true)
	{
		struct stream *s = stream_of(stream);
		if (!s)
			rc = violation("cuStreamSynchronize", "no such stream", INVALID_HANDLE);
		while (s && !is_idle(s))
			pthread_cond_wait(&fake.moved, &fake.lock);
	}
	END
}

int cuStreamWaitEvent(void *stream, void *event, unsigned int flags);
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct event *e = event;

	CALL("cuStreamWaitEvent", true)
	{
		struct stream *s = stream_of(stream);
		if (!s || !e || !e->alive || flags)
			rc = violation("cuStreamWaitEvent", "no such stream or event",
				       INVALID_HANDLE);
		else if (e->recorded)
			push_op(s, (struct op){.kind = OP_WAIT, .event = e, .number = e->recorded});
	}
	END
}

int cuEventCreate(void **ret_event, unsigned int flags);
EXPORT int cuEventCreate(void **ret_event, unsigned int flags)
{
	CALL("cuEventCreate", true)
	{
		struct event *e = calloc(1, sizeof(*e));
		(void)flags;
		if (!e)
			abort();
		e->alive = true;
		e->ctx = stack[depth - 1];
		e->next = fake.events;
		fake.events = e;
		fake.n_events++;
		*ret_event = e;
	}
	END
}

int cuEventDestroy_v2(void *event);
EXPORT int cuEventDestroy_v2(void *event)
{
	struct event *e = event;

	CALL("cuEventDestroy_v2", true)
	{
		if (!e->alive)
			rc = violation("cuEventDestroy_v2", "no such event", INVALID_HANDLE);
		fake.n_events -= e->alive;
		e->alive = false;
	}
	END
}

int cuEventRecord(void *event, void *stream);
EXPORT int cuEventRecord(void *event, void *stream)
{
	struct event *e = event;

	CALL("cuEventRecord", true)
	{
		struct stream *s = stream_of(stream);
		/* A destroyed stream, or one of another context: an error of the caller. */
		if (!s || e->ctx != s->ctx)
			rc = INVALID_HANDLE;
		else
			push_op(s, (struct op){
					   .kind = OP_RECORD, .event = e, .number = ++e->recorded});
	}
	END
}

int cuEventQuery(void *event);
EXPORT int cuEventQuery(void *event)
{
	struct event *e = event;

	CALL("cuEventQuery", true) rc = e->done < e->recorded ? NOT_READY : OK;
	END
}

int cuEventSynchronize(void *event);
EXPORT int cuEventSynchronize(void *event)
{
	struct event *e = event;

	CALL("cuEventSynchronize", true)
	{
		uint64_t number = e->recorded;
		while (e->done < number)
			pthread_cond_wait(&fake.moved, &fake.lock);
	}
	END
}
