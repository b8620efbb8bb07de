/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD: the wall clock of one server, for tests, without support in the servers. The file
 * that LEAT_TEST_CLOCK names holds the offset of the clock, an int64_t of nanoseconds in the
 * machine's byte order; a write to the file makes the clock jump. Monotonic clocks are not changed.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000

static const volatile int64_t *ahead_ns;
static int (*real_gettime)(clockid_t id, struct timespec *ts);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("LEAT_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	if (at != MAP_FAILED)
		ahead_ns = at;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc;

	if (!real_gettime)
		real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT,
									    "clock_gettime");
	rc = real_gettime(id, ts);
	if (rc == 0 && ahead_ns && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t ns = ts->tv_sec * (int64_t)BILLION + ts->tv_nsec + *ahead_ns;

		ts->tv_sec = ns / BILLION;
		ts->tv_nsec = ns % BILLION;
	}
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;

	(void)tz;
	if (clock_gettime(CLOCK_REALTIME, &ts) < 0)
		return -1;
	*tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts) < 0)
		return -1;
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}
