/*
 * Copies of payload. File data goes from the disk to the network and from there into the caller's
 * slot without being touched: whoever has to move it by the processor all the same (a fragment, a
 * caller's own memory) does so by payload_copy, which counts, so that what a data path costs can be
 * read off. Not counted: what the kernel copies (tcp, page cache), and the bytes that tcp has read
 * ahead with a frame, which each link counts by itself. Any thread.
 */
#ifndef LEAT_BASE_PAYLOAD_H
#define LEAT_BASE_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

void payload_copy(void *to, const void *from, size_t len);
void payload_move(void *to, const void *from, size_t len); /* the two may overlap */
/* Bytes, since this program began. */
uint64_t payload_copied(void);

#endif
