/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of the fake cuFile besides cuFile's own functions. Any thread. */
#ifndef LEAT_TESTS_CUDA_FAKE_CUFILE_H
#define LEAT_TESTS_CUDA_FAKE_CUFILE_H

#include <stdint.h>

unsigned int fake_cufile_violations(void);
unsigned int fake_cufile_left(void);  /* files and buffers that are registered */
unsigned int fake_cufile_reads(void); /* calls */
uint64_t fake_cufile_bytes(void);
void fake_cufile_fail(unsigned int nth); /* the nth read from now fails */
void fake_cufile_refuse(int files);      /* no file is good for it, or they are again */
void fake_cufile_delay(unsigned int us); /* of each read */

#endif
