/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/gpu/gds.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "client/dataset/vol.h"
#include "client/dataset/vol_fd.h"
#include "client/include/leat/leat_loader.h"
#include "common/base/log.h"

#define LIBRARY    "libcufile.so.0"
#define FILES_MAX  64u /* open files, unless more are in use */
#define FIRST_EACH 4u  /* batches of each way that are timed first */
/* Then each way is timed again in this many batches: disks and caches change. */
#define AGAIN      64u
#define SMOOTH     4u /* weight of a new measurement: a quarter */
#define FAILED_MAX 3u

/* From cufile.h: numbers of its ABI. */
enum {
	CU_FILE_OK = 0,
	CU_FILE_OPAQUE_FD = 1
};

struct cufile_error {
	int err, cu_err;
};

struct cufile_descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

/* X(result, member, symbol, parameters): all functions that are used. */
#define CUFILE_FUNCTIONS(X)                                                                        \
	X(struct cufile_error, driver_open, "cuFileDriverOpen", (void))                            \
	X(struct cufile_error, handle_register, "cuFileHandleRegister",                            \
	  (void **ret_handle, struct cufile_descr *descr))                                         \
	X(void, handle_deregister, "cuFileHandleDeregister", (void *handle))                       \
	X(struct cufile_error, buf_register, "cuFileBufRegister",                                  \
	  (const void *base, size_t len, int flags))                                               \
	X(struct cufile_error, buf_deregister, "cuFileBufDeregister", (const void *base))          \
	X(ssize_t, read, "cuFileRead", (void *handle, void *base, size_t len, off_t off, off_t at))

/* Written under `loading` when the library is loaded, immutable afterwards. Never unloaded, and
 * the driver stays open: other libraries in this process may use it. */
static struct {
#define X(result, member, symbol, parameters) result(*member) parameters;
	CUFILE_FUNCTIONS(X)
#undef X
	bool ready;
} cufile;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

struct gds_file {
	uint32_t file, refs;
	int fd;
	void *handle;
	uint64_t used;
};

struct gds {
	pthread_mutex_t lock; /* guards all members */
	struct gds_file *files;
	uint32_t n_files, cap_files;
	uint64_t uses;
	uint64_t batches; /* for which gds_choose chose a way */
	uint64_t ns_per_mib[2];
	uint64_t failed, failed_in_a_row;
	bool off;
};

/* ---- the library ---- */

static int find_functions(void *lib, struct detail *d)
{
	const char *missing = NULL;

#define X(result, member, symbol, parameters)                                                      \
	*(void **)&cufile.member = dlsym(lib, symbol);                                             \
	missing = cufile.member ? missing : symbol;
	CUFILE_FUNCTIONS(X)
#undef X
	if (!missing)
		return 0;
	return detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "%s has no %s", LIBRARY, missing);
}

static int start_library(void *lib, struct detail *d)
{
	TRY(find_functions(lib, d));
	struct cufile_error e = cufile.driver_open();
	if (e.err == CU_FILE_OK)
		return 0;
	return detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "cuFile does not start (%d, %d)", e.err,
			  e.cu_err);
}

static int load(struct detail *d)
{
	int rc = 0;

	pthread_mutex_lock(&loading);
	if (!cufile.ready) {
		void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
		rc = lib ? start_library(lib, d)
			 : detail_set(d, -LE_NODEV, NULL, UINT64_MAX, "no cuFile: %.150s",
				      dlerror());
		cufile.ready = rc == 0;
	}
	pthread_mutex_unlock(&loading);
	return rc;
}

int gds_open(int direct, struct gds **ret_gds, struct detail *d)
{
	*ret_gds = NULL;
	if (direct == LEAT_DIRECT_NEVER)
		return 0;
	int rc = load(d);
	if (rc < 0) {
		if (direct == LEAT_DIRECT_REQUIRE)
			return rc;
		*d = (struct detail){.off = UINT64_MAX};
		return 0;
	}
	struct gds *g = calloc(1, sizeof(*g));
	if (!g)
		return -LE_NOMEM;
	pthread_mutex_init(&g->lock, NULL);
	*ret_gds = g;
	return 0;
}

/* ---- files ---- */

static void end_file(struct gds_file *f)
{
	cufile.handle_deregister(f->handle);
	close(f->fd);
}

void gds_close(struct gds *g)
{
	if (!g)
		return;
	for (uint32_t i = 0; i < g->n_files; i++)
		end_file(&g->files[i]);
	free(g->files);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* With the lock. If more than FILES_MAX files are open, closes the idle one that was unused
 * longest. */
static void trim(struct gds *g)
{
	uint32_t oldest = UINT32_MAX;

	for (uint32_t i = 0; i < g->n_files; i++) {
		const struct gds_file *f = &g->files[i];
		if (f->refs == 0 && (oldest == UINT32_MAX || f->used < g->files[oldest].used))
			oldest = i;
	}
	if (g->n_files <= FILES_MAX || oldest == UINT32_MAX)
		return;
	end_file(&g->files[oldest]);
	g->files[oldest] = g->files[--g->n_files];
}

static int open_file(const struct gds_range *r, struct gds_file *f)
{
	struct cufile_descr descr = {.type = CU_FILE_OPAQUE_FD};

	/* Without O_DIRECT cuFile copies through host memory itself, more slowly than the loader
	 * does. */
	int fd = vol_open_regular(r->path, O_RDONLY | O_DIRECT, 0);
	if (fd < 0)
		return fd;
	*f = (struct gds_file){.file = r->file, .fd = fd};
	descr.handle.fd = fd;
	struct cufile_error e = cufile.handle_register(&f->handle, &descr);
	if (e.err != CU_FILE_OK) {
		close(fd);
		return -LE_NOTSUP;
	}
	return 0;
}

static int add_file(struct gds *g, const struct gds_file *f)
{
	if (g->n_files == g->cap_files) {
		uint32_t cap = g->cap_files ? g->cap_files * 2 : 16;
		struct gds_file *more = realloc(g->files, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		g->files = more;
		g->cap_files = cap;
	}
	g->files[g->n_files++] = *f;
	return 0;
}

/* With the lock. */
static struct gds_file *find_file(struct gds *g, uint32_t file)
{
	for (uint32_t i = 0; i < g->n_files; i++) {
		if (g->files[i].file == file)
			return &g->files[i];
	}
	return NULL;
}

/* Holds the lock while it opens a file, which happens mostly at the beginning. */
static int get_file(struct gds *g, const struct gds_range *r, void **ret_handle)
{
	struct gds_file made;
	int rc = 0;

	pthread_mutex_lock(&g->lock);
	struct gds_file *f = find_file(g, r->file);
	if (!f) {
		rc = open_file(r, &made);
		if (rc == 0) {
			rc = add_file(g, &made);
			if (rc < 0)
				end_file(&made);
		}
		f = rc == 0 ? &g->files[g->n_files - 1] : NULL;
	}
	if (f) {
		f->refs++;
		f->used = ++g->uses;
		*ret_handle = f->handle;
	}
	trim(g);
	pthread_mutex_unlock(&g->lock);
	return rc;
}

static void put_file(struct gds *g, uint32_t file)
{
	pthread_mutex_lock(&g->lock);
	struct gds_file *f = find_file(g, file);
	if (f)
		f->refs--;
	trim(g);
	pthread_mutex_unlock(&g->lock);
}

/* ---- reading ---- */

static const void *address(uint64_t mem)
{
	return (const void *)(uintptr_t)mem;
}

void gds_register(struct gds *g, uint64_t mem, uint64_t len)
{
	struct cufile_error e = cufile.buf_register(address(mem), len, 0);

	(void)g;
	if (e.err != CU_FILE_OK)
		log_debug("cuFile does not register %llu bytes (%d, %d)", (unsigned long long)len,
			  e.err, e.cu_err);
}

void gds_unregister(struct gds *g, uint64_t mem)
{
	(void)g;
	(void)cufile.buf_deregister(address(mem));
}

static int read_all(void *handle, const struct gds_range *r)
{
	uint64_t done = 0;

	while (done < r->len) {
		ssize_t n = cufile.read(handle, (void *)(uintptr_t)r->mem, r->len - done,
					(off_t)(r->off + done), (off_t)(r->at + done));
		if (n < 0)
			return -LE_IO;
		if (n == 0)
			return -LE_NODATA;
		if ((uint64_t)n > r->len - done)
			return -LE_IO;
		done += (uint64_t)n;
	}
	return 0;
}

int gds_read(struct gds *g, const struct gds_range *r)
{
	void *handle = NULL;

	TRY(get_file(g, r, &handle));
	int rc = read_all(handle, r);
	put_file(g, r->file);
	return rc;
}

/* ---- the choice ---- */

enum gds_way gds_choose(struct gds *g, bool *ret_timed)
{
	enum gds_way way;

	pthread_mutex_lock(&g->lock);
	uint64_t i = g->batches++;
	if (g->off) {
		*ret_timed = false;
		way = GDS_BOUNCE;
	} else if (i < 2 * FIRST_EACH || i % AGAIN < 2) {
		*ret_timed = true;
		way = i % 2 ? GDS_DIRECT : GDS_BOUNCE;
	} else {
		*ret_timed = false;
		way = g->ns_per_mib[GDS_DIRECT] && g->ns_per_mib[GDS_BOUNCE] &&
				      g->ns_per_mib[GDS_DIRECT] < g->ns_per_mib[GDS_BOUNCE]
			      ? GDS_DIRECT
			      : GDS_BOUNCE;
	}
	pthread_mutex_unlock(&g->lock);
	return way;
}

void gds_took(struct gds *g, enum gds_way way, uint64_t us, uint64_t bytes)
{
	uint64_t ns = bytes ? us * 1000 * (1u << 20) / bytes : 0;

	if (ns == 0)
		return;
	pthread_mutex_lock(&g->lock);
	uint64_t *was = &g->ns_per_mib[way];
	/* The first batch of each way includes opening files and allocating memory, so it is
	 * replaced. */
	*was = *was == 0 || g->batches <= 4 ? ns : *was - *was / SMOOTH + ns / SMOOTH;
	if (way == GDS_DIRECT)
		g->failed_in_a_row = 0;
	pthread_mutex_unlock(&g->lock);
}

void gds_failed(struct gds *g, int rc)
{
	pthread_mutex_lock(&g->lock);
	g->failed++;
	bool off = ++g->failed_in_a_row >= FAILED_MAX && !g->off;
	g->off |= off;
	pthread_mutex_unlock(&g->lock);
	if (off)
		log_warn("cuFile: %s; batches go through host memory", status_text(rc));
}

/* Returns 0 only without a measurement. */
static uint64_t mib_s(uint64_t ns_per_mib)
{
	uint64_t v = ns_per_mib ? 1000000000 / ns_per_mib : 0;
	return v ? v : ns_per_mib > 0;
}

void gds_stats(struct gds *g, struct gds_stats *ret_stats)
{
	pthread_mutex_lock(&g->lock);
	uint64_t direct = g->ns_per_mib[GDS_DIRECT], bounce = g->ns_per_mib[GDS_BOUNCE];
	*ret_stats = (struct gds_stats){.direct_mib_s = mib_s(direct),
					.bounce_mib_s = mib_s(bounce),
					.failed = g->failed};
	pthread_mutex_unlock(&g->lock);
}
