/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the checkers themselves, run by name like the others. Returns 0 if they pass. */
#ifndef LEAT_TESTS_SIM_LINEAR_TEST_H
#define LEAT_TESTS_SIM_LINEAR_TEST_H

int linear_test_registers(void);
int linear_test_registers_random(void);
int linear_test_names(void);
int linear_test_links(void);
int linear_test_names_random(void);
int linear_test_cells(void);
int linear_test_cells_random(void);

#endif
