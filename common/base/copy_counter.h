/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts copies of file data by the processor. File data moves from disk to network and into the
 * caller's slot without such copies. Code that has to copy all the same (a fragment, memory of the
 * caller) calls copy_counted, so the cost of a data path can be measured. Not counted: copies by
 * the kernel (tcp, page cache), and bytes that tcp has read ahead with a frame, which each link
 * counts separately. Any thread.
 */
#ifndef LEAT_COMMON_BASE_COPY_COUNTER_H
#define LEAT_COMMON_BASE_COPY_COUNTER_H

#include <stddef.h>
#include <stdint.h>

void copy_counted(void *to, const void *from, size_t len);
void move_counted(void *to, const void *from, size_t len); /* the two may overlap */
/* Returns the number of bytes copied since the program began. */
uint64_t copy_counter_bytes(void);

#endif
