/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/build.h"

#ifndef LEAT_BUILD
#define LEAT_BUILD LEAT_VERSION
#endif

const char leat_build[] = LEAT_BUILD;
