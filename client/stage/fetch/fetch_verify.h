/* SPDX-License-Identifier: Apache-2.0 */
/* Verification of an existing copy. */
#ifndef LEAT_CLIENT_STAGE_FETCH_FETCH_VERIFY_H
#define LEAT_CLIENT_STAGE_FETCH_FETCH_VERIFY_H

#include "client/stage/fetch/fetch.h"

/* Reads every block of the finished files in opts->store and compares it with the manifest; nothing
 * is fetched. Clears the bits of damaged chunks in memory; *ret_n_bad: how many, d: the first one.
 * *ret_code: enum leat_stage_code. Yields. */
int fetch_verify(const struct fetch_options *opts, struct fetch_report *ret_report,
		 uint64_t *ret_n_bad, int *ret_code, struct detail *d) CHECK_RESULT;

#endif
