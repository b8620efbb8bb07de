/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of the fake driver besides the driver's own functions. Any thread. */
#ifndef LEAT_TESTS_CUDA_FAKE_DRIVER_H
#define LEAT_TESTS_CUDA_FAKE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

void fake_cuda_delay(unsigned int us);    /* before each copy is done */
void fake_cuda_delay_up(unsigned int us); /* before those to the device are, besides */
/* The nth call from now (1: the next) of a function, by its symbol, fails with this error. */
void fake_cuda_fail(const char *symbol, unsigned int nth, int error);
unsigned int fake_cuda_calls(const char *symbol);
unsigned int fake_cuda_violations(void);
/* Contexts retained, allocations, registrations, streams (of cuStreamCreate) and events. */
unsigned int fake_cuda_left(void);
uint64_t fake_cuda_allocated(void), fake_cuda_registered(void); /* bytes */
/* For the fake cuFile: is it device memory, and is a context current? Copies into it at once, -1
 * where something that is under way uses it. */
int fake_cuda_is_device(const void *at, size_t len);
int fake_cuda_write(void *dst, const void *src, size_t len);
/* What a kernel would do: reads device memory in a stream, late. */
int fake_cuda_read(void *ret_bytes, uint64_t src, size_t len, void *stream);

#endif
