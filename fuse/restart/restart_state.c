/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/restart/restart_state.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct restart *restart_state_create(int *ret_fd)
{
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	struct restart *k;

	if (ret_fd != NULL) {
		fd = memfd_create("leat-mount", MFD_CLOEXEC);
		flags = MAP_SHARED;
		if (fd < 0)
			return NULL;
		if (ftruncate(fd, sizeof(*k)) < 0) {
			close(fd);
			return NULL;
		}
	}
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, flags, fd, 0);
	if (k == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	k->magic = RESTART_MAGIC;
	k->version = RESTART_VERSION;
	k->size = sizeof(*k);
	if (ret_fd != NULL)
		*ret_fd = fd;
	return k;
}

struct restart *restart_state_open(int fd)
{
	struct restart *k;
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof(*k))
		return NULL;
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (k == MAP_FAILED)
		return NULL;
	if (k->magic == RESTART_MAGIC && k->version == RESTART_VERSION && k->size == sizeof(*k) &&
	    k->files_top <= RESTART_FILES_MAX && k->init_len <= RESTART_INIT_MAX &&
	    k->answer_len <= RESTART_INIT_MAX)
		return k;
	munmap(k, sizeof(*k));
	return NULL;
}

int64_t monotonic_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void restart_state_ready(struct restart *k, const struct rpc_key *key)
{
	k->has_key = 0;
	RESTART_BARRIER();
	k->key = *key;
	RESTART_BARRIER();
	k->has_key = 1;
	k->ready_ms = monotonic_ms();
	RESTART_BARRIER();
	k->n_ready++;
}
