/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies a store while no server runs.
 */
#ifndef LEAT_OSSD_CHECK_H
#define LEAT_OSSD_CHECK_H

#include <stdbool.h>
#include <stdio.h>

#include "common/rt/env.h"
#include "ossd/params.h"

/* Reads the whole index, with verify_data also every block, and writes one line per problem to
 * report. Returns 0 and the number of problems, -LE_STORE_IN_USE if a server runs, or another
 * error. Yields. */
int ossd_check(struct env *env, const struct ossd_params *p, bool verify_data, FILE *report,
	       uint64_t *ret_problems) CHECK_RESULT;

#endif
