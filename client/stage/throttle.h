/* A rate of bytes per second, shared by the fibers of one loop: a bucket that holds a quarter of a
 * second. */
#ifndef LEAT_STAGE_THROTTLE_H
#define LEAT_STAGE_THROTTLE_H

#include <stdint.h>

struct throttle {
	uint64_t rate;    /* bytes per second; 0: no limit */
	uint64_t free_us; /* when what has been taken is paid for */
};

/* Waits until len more bytes may be moved, or *stop is not 0 (NULL: no such end), which it looks at
 * twice a second. Yields. */
void throttle_take(struct throttle *t, uint64_t len, const volatile int *stop);

#endif
