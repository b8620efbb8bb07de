/* SPDX-License-Identifier: Apache-2.0 */
/* The version of this build, with "+g" and the commit if it was built from git. Defined in
 * common/base/build.c, which only the programs are linked with: no other object changes from one
 * commit to the next. */
#ifndef LEAT_COMMON_BASE_BUILD_H
#define LEAT_COMMON_BASE_BUILD_H

extern const char leat_build[];

#endif
