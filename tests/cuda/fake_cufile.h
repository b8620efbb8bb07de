/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuFile's controls for tests, besides cuFile's own functions. Any thread. */
#ifndef LEAT_TESTS_CUDA_FAKE_CUFILE_H
#define LEAT_TESTS_CUDA_FAKE_CUFILE_H

#include <stdint.h>

unsigned int fake_cufile_violations(void);
unsigned int fake_cufile_left(void);  /* number of registered files and buffers */
unsigned int fake_cufile_reads(void); /* number of calls */
uint64_t fake_cufile_bytes(void);
void fake_cufile_fail(unsigned int nth); /* the nth read from now fails */
void fake_cufile_refuse(int files);      /* 1: refuses every file; 0: accepts files */
void fake_cufile_delay(unsigned int us); /* of each read */

#endif
