/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/gpu/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/loader/gpu/gds.h"

#define LIBRARY "libcuda.so.1"

/* From cuda.h: numbers of the driver's ABI. */
enum {
	CU_OK = 0,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_READY = 600,
	CU_REGISTER_PORTABLE = 1, /* pinned for every context of the process */
	CU_NON_BLOCKING = 1,      /* a stream that does not wait for the default one */
	CU_BLOCKING_SYNC = 1,     /* waiting for the event sleeps instead of spinning */
	CU_NO_TIMING = 2
};

/* X(member, symbol, parameters): all functions that are used. CUresult and CUdevice are int,
 * CUdeviceptr is 64 bits, contexts, streams and events are pointers. */
#define CUDA_FUNCTIONS(X)                                                                          \
	X(init, "cuInit", (unsigned int flags))                                                    \
	X(error_string, "cuGetErrorString", (int error, const char **ret_text))                    \
	X(device_count, "cuDeviceGetCount", (int *ret_count))                                      \
	X(device_get, "cuDeviceGet", (int *ret_device, int ordinal))                               \
	X(retain, "cuDevicePrimaryCtxRetain", (void **ret_ctx, int device))                        \
	X(give_back, "cuDevicePrimaryCtxRelease_v2", (int device))                                 \
	X(push, "cuCtxPushCurrent_v2", (void *ctx))                                                \
	X(pop, "cuCtxPopCurrent_v2", (void **ret_ctx))                                             \
	X(current, "cuCtxGetCurrent", (void **ret_ctx))                                            \
	X(current_device, "cuCtxGetDevice", (int *ret_device))                                     \
	X(synchronize, "cuCtxSynchronize", (void))                                                 \
	X(alloc, "cuMemAlloc_v2", (uint64_t * ret_ptr, size_t len))                                \
	X(free, "cuMemFree_v2", (uint64_t ptr))                                                    \
	X(host_register, "cuMemHostRegister_v2", (void *p, size_t len, unsigned int flags))        \
	X(host_unregister, "cuMemHostUnregister", (void *p))                                       \
	X(copy, "cuMemcpyHtoDAsync_v2", (uint64_t dst, const void *src, size_t len, void *stream)) \
	X(stream_create, "cuStreamCreate", (void **ret_stream, unsigned int flags))                \
	X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                    \
	X(stream_synchronize, "cuStreamSynchronize", (void *stream))                               \
	X(stream_wait, "cuStreamWaitEvent", (void *stream, void *event, unsigned int flags))       \
	X(event_create, "cuEventCreate", (void **ret_event, unsigned int flags))                   \
	X(event_destroy, "cuEventDestroy_v2", (void *event))                                       \
	X(event_record, "cuEventRecord", (void *event, void *stream))                              \
	X(event_query, "cuEventQuery", (void *event))                                              \
	X(event_synchronize, "cuEventSynchronize", (void *event))

/* Written under `loading` when the library is loaded, immutable afterwards; never unloaded. */
static struct {
#define X(member, symbol, parameters) int(*member) parameters;
	CUDA_FUNCTIONS(X)
#undef X
	bool ready;
} cu;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

struct cuda_device {
	void *ctx, *stream;
	int ordinal, device;
	bool delivers, must_pin;
	struct gds *gds; /* NULL: none */
};

/* A stream of the user that reads the slot. */
struct use {
	void *stream, *event; /* the event is reused by later batches */
	bool copies;          /* true: reads the host memory; false: the device memory */
};

struct cuda_slot {
	struct cuda_device *dev;
	pthread_mutex_t lock; /* guards uses */
	void *base, *arrived;
	uint64_t len, mem;
	_Atomic uint64_t pinned;
	bool sent;
	struct use uses[CUDA_STREAMS_MAX];
	uint32_t n_uses;
};

/* ---- the library ---- */

static int find_functions(void *lib, struct detail *d)
{
	const char *missing = NULL;

#define X(member, symbol, parameters)                                                              \
	*(void **)&cu.member = dlsym(lib, symbol);                                                 \
	missing = cu.member ? missing : symbol;
	CUDA_FUNCTIONS(X)
#undef X
	if (!missing)
		return 0;
	return detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "%s has no %s: the driver is too old",
			  LIBRARY, missing);
}

/* only_if_loaded: only if another part of this process has loaded it. */
static int load(bool only_if_loaded, struct detail *d)
{
	int rc = 0;

	pthread_mutex_lock(&loading);
	if (!cu.ready) {
		void *lib =
			dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0));
		rc = lib ? find_functions(lib, d)
			 : detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "no CUDA driver: %.150s",
				      only_if_loaded ? "not in use" : dlerror());
		cu.ready = rc == 0;
	}
	pthread_mutex_unlock(&loading);
	return rc;
}

static int failed(struct detail *d, int error, const char *what)
{
	const char *text = NULL;

	if (cu.error_string(error, &text) != CU_OK || !text)
		text = "unknown error";
	return detail_set(d, error == CU_OUT_OF_MEMORY ? -LE_NOMEM : -LE_IO, NULL, UINT64_MAX,
			  "CUDA: %s: %.120s (%d)", what, text, error);
}

/* ---- devices ---- */

static int current_ordinal(int *ret_ordinal)
{
	void *ctx = NULL;
	int device;

	if (cu.current(&ctx) != CU_OK || !ctx || cu.current_device(&device) != CU_OK)
		return -LE_NODEV;
	*ret_ordinal = device; /* a CUdevice is the ordinal */
	return 0;
}

static int parse_name(const char *name, int *ret_ordinal, struct detail *d)
{
	char *end = NULL;
	long n = -1;

	*ret_ordinal = -1; /* "cuda": the device of the current context, else the first */
	if (strcmp(name, "cuda") == 0)
		return 0;
	if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9')
		n = strtol(name + 5, &end, 10);
	if (!end || *end || n < 0 || n > 1023)
		return detail_set(d, -LE_INVAL, NULL, UINT64_MAX,
				  "device is cuda or cuda:N, not %.60s", name);
	*ret_ordinal = (int)n;
	return 0;
}

static int start_device(struct cuda_device *dev, struct detail *d)
{
	int n = 0, r = cu.device_count(&n);

	if (r == CU_OK && dev->ordinal >= n)
		return detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "there is no cuda:%d among %d",
				  dev->ordinal, n);
	r = r == CU_OK ? cu.device_get(&dev->device, dev->ordinal) : r;
	r = r == CU_OK ? cu.retain(&dev->ctx, dev->device) : r;
	if (r != CU_OK) {
		dev->ctx = NULL;
		return failed(d, r, "cannot use the device");
	}
	r = cu.push(dev->ctx);
	if (r == CU_OK) {
		void *ctx;
		r = cu.stream_create(&dev->stream, CU_NON_BLOCKING);
		cu.pop(&ctx);
	}
	return r == CU_OK ? 0 : failed(d, r, "cannot make a stream");
}

static int open_device(struct cuda_device *dev, const char *name, int pinned, struct detail *d)
{
	bool passive = !name && pinned == LEAT_PINNED_AUTO;
	int in_use = -1;

	TRY(name ? parse_name(name, &dev->ordinal, d) : 0);
	TRY(load(passive, d));
	int r = passive ? CU_OK : cu.init(0);
	if (r != CU_OK)
		return failed(d, r, "cannot start the driver");
	int rc = current_ordinal(&in_use);
	if (rc < 0 && passive)
		return rc;
	if (dev->ordinal < 0)
		dev->ordinal = in_use < 0 ? 0 : in_use;
	return start_device(dev, d);
}

int cuda_open(const char *name, int pinned, struct cuda_device **ret_device, struct detail *d)
{
	*ret_device = NULL;
	if (!name && pinned == LEAT_PINNED_NEVER)
		return 0;
	struct cuda_device *dev = calloc(1, sizeof(*dev));
	if (!dev)
		return -LE_NOMEM;
	dev->ordinal = -1;
	dev->delivers = name != NULL;
	dev->must_pin = pinned == LEAT_PINNED_REQUIRE;
	int rc = open_device(dev, name, pinned, d);
	if (rc == 0) {
		*ret_device = dev;
		return 0;
	}
	cuda_close(dev);
	/* The options do not require a GPU, so the loader works without one. */
	return name || pinned == LEAT_PINNED_REQUIRE ? rc : 0;
}

void cuda_close(struct cuda_device *dev)
{
	void *ctx;

	if (!dev)
		return;
	if (dev->ctx && cu.push(dev->ctx) == CU_OK) {
		if (dev->stream)
			cu.stream_destroy(dev->stream);
		cu.pop(&ctx);
	}
	if (dev->ctx)
		cu.give_back(dev->device);
	free(dev);
}

void cuda_use_gds(struct cuda_device *dev, struct gds *g)
{
	dev->gds = g;
}

/* ---- slots ---- */

/* Pushes the device's context; leave() restores the thread's own context. */
static int enter(const struct cuda_slot *s)
{
	return cu.push(s->dev->ctx);
}

static void leave(void)
{
	void *ctx;

	cu.pop(&ctx);
}

int cuda_slot_create(struct cuda_device *dev, struct cuda_slot **ret_slot)
{
	struct cuda_slot *s = calloc(1, sizeof(*s));

	if (!s)
		return -LE_NOMEM;
	s->dev = dev;
	pthread_mutex_init(&s->lock, NULL);
	*ret_slot = s;
	return 0;
}

void cuda_slot_destroy(struct cuda_slot *s)
{
	if (!s)
		return;
	cuda_slot_detach(s);
	if (enter(s) == CU_OK) {
		if (s->arrived)
			cu.event_destroy(s->arrived);
		for (uint32_t i = 0; i < CUDA_STREAMS_MAX; i++) {
			if (s->uses[i].event)
				cu.event_destroy(s->uses[i].event);
		}
		leave();
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int attach(struct cuda_slot *s, void *base, uint64_t len, struct detail *d)
{
	int r = CU_OK;

	if (!s->arrived)
		r = cu.event_create(&s->arrived, CU_NO_TIMING | CU_BLOCKING_SYNC);
	if (r == CU_OK && s->dev->delivers)
		r = cu.alloc(&s->mem, len);
	if (r != CU_OK)
		return failed(d, r, "no device memory for a batch");
	if (s->mem && s->dev->gds)
		gds_register(s->dev->gds, s->mem, len);
	r = cu.host_register(base, len, CU_REGISTER_PORTABLE);
	/* Unpinned memory can be copied too, but more slowly; memory_pinned of the metrics shows
	 * it. */
	if (r != CU_OK && s->dev->must_pin)
		return failed(d, r, "a batch's memory cannot be pinned");
	s->pinned = r == CU_OK ? len : 0;
	return 0;
}

int cuda_slot_attach(struct cuda_slot *s, void *base, uint64_t len, struct detail *d)
{
	int r = enter(s);

	if (r != CU_OK)
		return failed(d, r, "cannot use the device's context");
	s->base = base;
	s->len = len;
	int rc = attach(s, base, len, d);
	leave();
	if (rc < 0)
		cuda_slot_detach(s);
	return rc;
}

bool cuda_slot_attached(const struct cuda_slot *s)
{
	return s->base != NULL;
}

void cuda_slot_detach(struct cuda_slot *s)
{
	if (!s || !s->base)
		return;
	if (enter(s) == CU_OK) {
		if (s->sent)
			cu.event_synchronize(s->arrived);
		for (uint32_t i = 0; i < s->n_uses; i++)
			cu.event_synchronize(s->uses[i].event);
		if (s->pinned)
			cu.host_unregister(s->base);
		if (s->mem && s->dev->gds)
			gds_unregister(s->dev->gds, s->mem);
		if (s->mem)
			cu.free(s->mem);
		leave();
	}
	s->sent = false;
	s->n_uses = 0;
	s->pinned = 0;
	s->mem = 0;
	s->base = NULL;
}

/* Calls `ask` for the event after each read of the host memory, until one is not CU_OK. */
static int of_host_reads(struct cuda_slot *s, int (*ask)(void *event))
{
	int r = enter(s);

	if (r != CU_OK)
		return r;
	if (s->sent)
		r = ask(s->arrived);
	for (uint32_t i = 0; i < s->n_uses && r == CU_OK; i++) {
		if (s->uses[i].copies)
			r = ask(s->uses[i].event);
	}
	leave();
	return r;
}

bool cuda_slot_is_busy(struct cuda_slot *s)
{
	return s && s->base && of_host_reads(s, cu.event_query) == CU_NOT_READY;
}

int cuda_slot_settle(struct cuda_slot *s, struct detail *d)
{
	if (!s || !s->base)
		return 0;
	int r = of_host_reads(s, cu.event_synchronize);
	return r == CU_OK ? 0 : failed(d, r, "the copy of an earlier batch has failed");
}

static int send(struct cuda_slot *s, uint64_t len)
{
	int r = CU_OK;

	for (uint32_t i = 0; i < s->n_uses && r == CU_OK; i++)
		r = cu.stream_wait(s->dev->stream, s->uses[i].event, 0);
	if (r == CU_OK && len > 0)
		r = cu.copy(s->mem, s->base, len, s->dev->stream);
	if (r == CU_OK)
		r = cu.event_record(s->arrived, s->dev->stream);
	/* The slot has no record of a copy in flight after a failure, so wait for it. */
	if (r != CU_OK)
		cu.stream_synchronize(s->dev->stream);
	s->n_uses = r == CU_OK ? 0 : s->n_uses;
	s->sent = r == CU_OK;
	return r;
}

int cuda_slot_send(struct cuda_slot *s, uint64_t len, struct detail *d)
{
	if (!s->dev->delivers || !s->base) {
		/* settle has waited for all copies from the host memory. */
		s->n_uses = 0;
		return 0;
	}
	int r = enter(s);
	if (r == CU_OK) {
		r = send(s, len);
		leave();
	}
	return r == CU_OK ? 0 : failed(d, r, "cannot copy a batch to the device");
}

/* ---- filled by cuFile ---- */

int cuda_slot_enter(struct cuda_slot *s)
{
	return enter(s) == CU_OK ? 0 : -LE_IO;
}

void cuda_slot_leave(void)
{
	leave();
}

int cuda_slot_empty(struct cuda_slot *s, uint64_t *ret_mem)
{
	if (!s->mem)
		return -LE_NODEV;
	TRY(cuda_slot_enter(s));
	int r = s->sent ? cu.event_synchronize(s->arrived) : CU_OK;
	for (uint32_t i = 0; i < s->n_uses && r == CU_OK; i++)
		r = cu.event_synchronize(s->uses[i].event);
	leave();
	if (r != CU_OK)
		return -LE_IO;
	*ret_mem = s->mem;
	return 0;
}

void cuda_slot_filled(struct cuda_slot *s)
{
	/* The bytes are in place, so no stream of the user waits, not even for copies of other
	 * slots in the loader's stream. */
	s->n_uses = 0;
	s->sent = false;
}

int cuda_slot_arrived(struct cuda_slot *s)
{
	TRY(cuda_slot_enter(s));
	int r = s->sent ? cu.event_synchronize(s->arrived) : CU_OK;
	leave();
	return r == CU_OK ? 0 : -LE_IO;
}

/* ---- use ---- */

/* With the lock and the context. Finds or makes the entry of the stream, and records its event
 * at the stream's present end. */
static int note_use(struct cuda_slot *s, void *stream, bool copies, struct detail *d)
{
	uint32_t i = 0;
	int r = CU_OK;

	while (i < s->n_uses && (s->uses[i].stream != stream || s->uses[i].copies != copies))
		i++;
	if (i == CUDA_STREAMS_MAX)
		return detail_set(d, -LE_2BIG, NULL, UINT64_MAX,
				  "a batch is read by at most %u streams", CUDA_STREAMS_MAX);
	struct use *u = &s->uses[i];
	if (!u->event)
		r = cu.event_create(&u->event, CU_NO_TIMING | CU_BLOCKING_SYNC);
	if (r == CU_OK)
		r = cu.event_record(u->event, stream);
	if (r != CU_OK)
		return failed(d, r, "the stream is none of this device's");
	u->stream = stream;
	u->copies = copies;
	s->n_uses = i < s->n_uses ? s->n_uses : i + 1;
	return 0;
}

int cuda_slot_use(struct cuda_slot *s, void *stream, struct leat_device_view *ret_view,
		  struct detail *d)
{
	int r = enter(s), rc;

	if (r != CU_OK)
		return failed(d, r, "cannot use the device's context");
	pthread_mutex_lock(&s->lock);
	rc = note_use(s, stream, false, d);
	if (rc == 0 && s->sent) {
		r = cu.stream_wait(stream, s->arrived, 0);
		/* A stream does not report that the copy has failed, so return it to the reader. */
		int state = cu.event_query(s->arrived);
		if (r == CU_OK && state != CU_NOT_READY)
			r = state;
	}
	pthread_mutex_unlock(&s->lock);
	leave();
	if (r != CU_OK)
		return failed(d, r, "the copy of a batch has failed");
	if (rc == 0)
		*ret_view = (struct leat_device_view){.size = ret_view->size,
						      .base = s->mem,
						      .len = s->base ? s->len : 0,
						      .device = s->dev->ordinal};
	return rc;
}

int cuda_slot_copy(struct cuda_slot *s, uint64_t dst, uint64_t len, void *stream, struct detail *d)
{
	int r = enter(s), rc = 0;

	if (r != CU_OK)
		return failed(d, r, "cannot use the device's context");
	if (len > 0)
		r = cu.copy(dst, s->base, len, stream);
	if (r == CU_OK) {
		pthread_mutex_lock(&s->lock);
		rc = note_use(s, stream, true, d);
		pthread_mutex_unlock(&s->lock);
		/* The slot has no record of the copy in flight, so wait for it. */
		if (rc < 0)
			cu.stream_synchronize(stream);
	}
	leave();
	return r == CU_OK ? rc : failed(d, r, "cannot copy a batch to the device");
}

void cuda_slot_release(struct cuda_slot *s)
{
	if (!s || s->n_uses == 0 || enter(s) != CU_OK)
		return;
	for (uint32_t i = 0; i < s->n_uses; i++) {
		/* The stream no longer exists, so wait for all work on the device. */
		if (!s->uses[i].copies &&
		    cu.event_record(s->uses[i].event, s->uses[i].stream) != CU_OK)
			cu.synchronize();
	}
	leave();
}

uint64_t cuda_slot_pinned(const struct cuda_slot *s)
{
	return s ? s->pinned : 0;
}

bool cuda_slot_delivers(const struct cuda_slot *s)
{
	return s && s->dev->delivers;
}
