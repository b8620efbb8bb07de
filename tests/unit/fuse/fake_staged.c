/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fuse/fake_staged.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_staged fake_staged = {.fd = -1};

void fake_stage(uint64_t ino, uint64_t ver, uint64_t size, char byte)
{
	char buf[4096];

	assert_true(size <= sizeof(buf));
	memset(buf, byte, sizeof(buf));
	fake_unstage();
	fake_staged.fd = memfd_create("copy", MFD_CLOEXEC);
	assert_int_equal(write(fake_staged.fd, buf, size), size);
	fake_staged.has = (struct staged_want){.ino = ino, .ver = ver, .size = size};
	fake_staged.generation++;
}

void fake_unstage(void)
{
	if (fake_staged.fd >= 0)
		close(fake_staged.fd);
	fake_staged.fd = -1;
	fake_staged.generation++;
}

int staged_create(struct env *env, const char *dirs, const struct uuid *cluster,
		  struct staged **ret_staged)
{
	(void)env;
	assert_int_equal(cluster->b[0], 1); /* ll_cluster */
	if (dirs[0] != '/')
		return -LE_INVAL;
	*ret_staged = (struct staged *)&fake_staged;
	return 0;
}

void staged_destroy(struct staged *s)
{
	(void)s;
	assert_int_equal(fake_staged.n_in_use, 0);
}

int staged_open(struct staged *s, const struct staged_want *want, struct staged_copy **ret_copy)
{
	const struct staged_want *has = &fake_staged.has;

	(void)s;
	fake_staged.n_opens++;
	if (fake_staged.fd < 0 || want->ino != has->ino || want->ver != has->ver ||
	    want->size != has->size)
		return -LE_NOENT;
	fake_staged.n_in_use++;
	*ret_copy = (struct staged_copy *)&fake_staged;
	return fcntl(fake_staged.fd, F_DUPFD_CLOEXEC, 3);
}

void staged_put(struct staged_copy *c)
{
	(void)c;
	fake_staged.n_in_use--;
}

uint64_t staged_generation(struct staged *s)
{
	(void)s;
	return fake_staged.generation;
}

void staged_stats(const struct staged *s, struct staged_stats *ret_stats)
{
	(void)s;
	*ret_stats = (struct staged_stats){.copies = fake_staged.fd >= 0};
}
