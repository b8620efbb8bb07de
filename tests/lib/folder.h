/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own. */
#ifndef LEAT_TESTS_LIB_FOLDER_H
#define LEAT_TESTS_LIB_FOLDER_H

#define FOLDER_MAX 64

/* A new one in `below` (NULL: TMPDIR, else /tmp), named after the test. Dies where there can be
 * none. */
void make_folder(const char *below, const char *name, char ret_path[FOLDER_MAX]);
/* With all that is in it; follows no links. */
void remove_folder(const char *path);

#endif
