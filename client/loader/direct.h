/*
 * Batches that are read straight into device memory (gds.h), where nothing of them has to be looked
 * at by the processor: every block that they lie in was verified by this process before, or nothing
 * is known of the files, no member has a checksum of its own or is packed, nobody decodes.
 */
#ifndef LEAT_LOADER_DIRECT_H
#define LEAT_LOADER_DIRECT_H

#include "client/loader/loader.h"

/* In a fiber, of a batch that is planned and whose slot is prepared: is it on the device now? If
 * not it is read as any other. Yields. */
bool direct_fill(struct leat_batch *b);
/* After it was read and sent the other way. Yields. */
void direct_after_send(struct leat_batch *b);

#endif
