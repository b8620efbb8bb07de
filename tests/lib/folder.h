/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder of a test. */
#ifndef LEAT_TESTS_LIB_FOLDER_H
#define LEAT_TESTS_LIB_FOLDER_H

#define FOLDER_MAX 64

/* Makes a new one in `below` (NULL: TMPDIR, else /tmp), named after the test. Aborts on a
 * failure. */
void make_folder(const char *below, const char *name, char ret_path[FOLDER_MAX]);
/* Removes the folder with its content; follows no links. */
void remove_folder(const char *path);

#endif
