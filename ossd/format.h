/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an empty store.
 */
#ifndef LEAT_OSSD_FORMAT_H
#define LEAT_OSSD_FORMAT_H

#include <stdbool.h>

#include "common/rt/env.h"
#include "ossd/params.h"

/* Makes an empty store in params.data_dir. -LE_EXIST: there is one already. -LE_BUSY:
 * params.data_device is in use or, without force, not empty. Yields. */
int ossd_format(struct env *env, const struct ossd_params *p, bool force) CHECK_RESULT;

#endif
