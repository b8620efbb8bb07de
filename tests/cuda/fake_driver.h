/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's controls for tests, besides the driver's own functions. Any thread. */
#ifndef LEAT_TESTS_CUDA_FAKE_DRIVER_H
#define LEAT_TESTS_CUDA_FAKE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

void fake_cuda_delay(unsigned int us);    /* before each copy is done */
void fake_cuda_delay_up(unsigned int us); /* before those to the device are done, in addition */
/* The nth call from now (1: the next) of a function, by its symbol, fails with this error. */
void fake_cuda_fail(const char *symbol, unsigned int nth, int error);
unsigned int fake_cuda_calls(const char *symbol);
unsigned int fake_cuda_violations(void);
/* Returns the number of contexts retained, allocations, registrations, streams (of cuStreamCreate)
 * and events. */
unsigned int fake_cuda_left(void);
uint64_t fake_cuda_allocated(void), fake_cuda_registered(void); /* bytes */
/* For the fake cuFile. Returns whether it is device memory, while a context is current. Copies into
 * it immediately; returns -1 where an operation in flight uses it. */
int fake_cuda_is_device(const void *at, size_t len);
int fake_cuda_write(void *dst, const void *src, size_t len);
/* Reads device memory in a stream, late, as a kernel would. */
int fake_cuda_read(void *ret_bytes, uint64_t src, size_t len, void *stream);

#endif
