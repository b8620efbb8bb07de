/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFile without a device: see README.md. It reads with pread into the fake driver's device memory,
 * after the driver has confirmed that it may be written now.
 */
#include "tests/cuda/fake_cufile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/cuda/fake_driver.h"

#define EXPORT    __attribute__((visibility("default")))
#define FILES_MAX 256
#define BUFS_MAX  64
#define INVALID   5011
#define BOUNCE    (1u << 20)
#define SECTOR    4096u

struct error {
	int err, cu_err;
};

struct descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

static struct {
	pthread_mutex_t lock;
	bool open;
	struct file {
		int fd;
	} files[FILES_MAX];
	const void *bufs[BUFS_MAX];
	unsigned int n_files, n_bufs, reads, violations, fail_at, delay_us;
	bool refuses;
	uint64_t bytes;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void violation(const char *symbol, const char *what)
{
	fake.violations++;
	fprintf(stderr, "fake cuFile: %s: %s\n", symbol, what);
}

/* ---- controls of tests ---- */

/* cuFile's threads may be reading meanwhile. */
#define LOCKED(what)                                                                               \
	do {                                                                                       \
		pthread_mutex_lock(&fake.lock);                                                    \
		what;                                                                              \
		pthread_mutex_unlock(&fake.lock);                                                  \
	} while (0)

EXPORT unsigned int fake_cufile_violations(void)
{
	unsigned int n;

	LOCKED(n = fake.violations);
	return n;
}

EXPORT unsigned int fake_cufile_left(void)
{
	unsigned int n;

	LOCKED(n = fake.n_files + fake.n_bufs);
	return n;
}

EXPORT unsigned int fake_cufile_reads(void)
{
	unsigned int n;

	LOCKED(n = fake.reads);
	return n;
}

EXPORT uint64_t fake_cufile_bytes(void)
{
	uint64_t n;

	LOCKED(n = fake.bytes);
	return n;
}

EXPORT void fake_cufile_fail(unsigned int nth)
{
	LOCKED(fake.fail_at = nth);
}

EXPORT void fake_cufile_refuse(int files)
{
	LOCKED(fake.refuses = files);
}

EXPORT void fake_cufile_delay(unsigned int us)
{
	LOCKED(fake.delay_us = us);
}

/* ---- the library ---- */

struct error cuFileDriverOpen(void);
EXPORT struct error cuFileDriverOpen(void)
{
	fake.open = true;
	return (struct error){0, 0};
}

struct error cuFileHandleRegister(void **ret_handle, struct descr *d);
EXPORT struct error cuFileHandleRegister(void **ret_handle, struct descr *d)
{
	struct error e = {INVALID, 0};

	pthread_mutex_lock(&fake.lock);
	if (!fake.open)
		violation("cuFileHandleRegister", "before cuFileDriverOpen");
	else if (d->type != 1 || !(fcntl(d->handle.fd, F_GETFL) & O_DIRECT))
		violation("cuFileHandleRegister", "not a descriptor with O_DIRECT");
	for (unsigned int i = 0; i < FILES_MAX && e.err && !fake.refuses; i++) {
		if (fake.files[i].fd)
			continue;
		fake.files[i].fd = d->handle.fd + 1;
		*ret_handle = &fake.files[i];
		fake.n_files++;
		e.err = 0;
	}
	pthread_mutex_unlock(&fake.lock);
	return e;
}

void cuFileHandleDeregister(void *handle);
EXPORT void cuFileHandleDeregister(void *handle)
{
	struct file *f = handle;

	pthread_mutex_lock(&fake.lock);
	if (!f->fd || fcntl(f->fd - 1, F_GETFL) < 0)
		violation("cuFileHandleDeregister", "not registered, or closed already");
	f->fd = 0;
	fake.n_files--;
	pthread_mutex_unlock(&fake.lock);
}

struct error cuFileBufRegister(const void *base, size_t len, int flags);
EXPORT struct error cuFileBufRegister(const void *base, size_t len, int flags)
{
	struct error e = {INVALID, 0};

	pthread_mutex_lock(&fake.lock);
	if (flags || !fake_cuda_is_device(base, len))
		violation("cuFileBufRegister", "not device memory, or no context");
	for (unsigned int i = 0; i < BUFS_MAX && e.err; i++) {
		if (!fake.bufs[i]) {
			fake.bufs[i] = base;
			fake.n_bufs++;
			e.err = 0;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return e;
}

struct error cuFileBufDeregister(const void *base);
EXPORT struct error cuFileBufDeregister(const void *base)
{
	struct error e = {INVALID, 0};

	pthread_mutex_lock(&fake.lock);
	for (unsigned int i = 0; i < BUFS_MAX; i++) {
		if (fake.bufs[i] == base) {
			fake.bufs[i] = NULL;
			fake.n_bufs--;
			e.err = 0;
			break;
		}
	}
	if (e.err || !fake_cuda_is_device(base, 1))
		violation("cuFileBufDeregister", "not registered, or freed already");
	pthread_mutex_unlock(&fake.lock);
	return e;
}

/* Reads a part: as much as one transfer takes. */
static ssize_t read_some(int fd, uint8_t *to, size_t len, off_t off)
{
	/* O_DIRECT needs whole sectors; cuFile has memory of its own for the others. */
	uint64_t first = (uint64_t)off / SECTOR * SECTOR;
	void *bounce;
	ssize_t n = -1;

	if (len > BOUNCE)
		len = BOUNCE;
	if (posix_memalign(&bounce, SECTOR, BOUNCE + 2 * SECTOR) != 0)
		return -1;
	uint64_t end = ((uint64_t)off + len + SECTOR - 1) / SECTOR * SECTOR;
	ssize_t got = pread(fd, bounce, end - first, (off_t)first);
	if (got >= 0) {
		size_t skip = (size_t)((uint64_t)off - first);
		n = (size_t)got <= skip ? 0 : got - (ssize_t)skip;
		n = n > (ssize_t)len ? (ssize_t)len : n;
		if (n > 0 && fake_cuda_write(to, (uint8_t *)bounce + skip, (size_t)n) < 0) {
			violation("cuFileRead", "memory that is in use, or no context");
			n = -1;
		}
	}
	free(bounce);
	return n;
}

ssize_t cuFileRead(void *handle, void *base, size_t len, off_t off, off_t at);
EXPORT ssize_t cuFileRead(void *handle, void *base, size_t len, off_t off, off_t at)
{
	struct file *f = handle;

	pthread_mutex_lock(&fake.lock);
	fake.reads++;
	bool fails = fake.fail_at && --fake.fail_at == 0;
	unsigned int us = fake.delay_us;
	int fd = f->fd - 1;
	if (fd < 0)
		violation("cuFileRead", "the file is not registered");
	pthread_mutex_unlock(&fake.lock);
	if (us)
		usleep(us);
	if (fails || fd < 0) {
		errno = EIO;
		return -1;
	}
	ssize_t n = read_some(fd, (uint8_t *)base + at, len, off);
	pthread_mutex_lock(&fake.lock);
	fake.bytes += n > 0 ? (uint64_t)n : 0;
	pthread_mutex_unlock(&fake.lock);
	return n;
}
