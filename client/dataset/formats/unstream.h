/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unpacked contents of a packed file (gzip, Zstandard, LZ4): as a stream, or as a view that a
 * format can read at any offset, with few long steps back. Memory is bounded whatever sizes the
 * file declares. Owned by one fiber, which yields in reads; on a loop, workers unpack.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_UNSTREAM_H
#define LEAT_CLIENT_DATASET_FORMATS_UNSTREAM_H

#include "client/dataset/formats/format.h"

/* Limit for the unpacked bytes of one file; no honest archive has more. */
#define UNSTREAM_MAX ((uint64_t)1 << 36)

struct unstream;

/* Opens a packed file; in is borrowed as long as the stream. -LE_NOTSUP: Leat was built without
 * the library for it. */
int unstream_create(enum packing packing, const struct format_input *in,
		    struct unstream **ret_stream) CHECK_RESULT;
void unstream_destroy(struct unstream *s); /* NULL is fine */
/* Unpacks the next len bytes; fewer only at the end. Returns how many, or the status of a failed
 * in->read, or -LE_CORRUPT or -LE_NOTSUP with *ret_fault, with an offset in the packed file. */
int64_t unstream_next(struct unstream *s, void *buf, size_t len, struct format_fault *ret_fault);
/* Unpacks the whole file to compute the size of its contents. -LE_FBIG: more than UNSTREAM_MAX. */
int unstream_measure(enum packing packing, const struct format_input *in, uint64_t *ret_size,
		     struct format_fault *ret_fault) CHECK_RESULT;

/* A view for formats: reads at any offset. After BACKS_MAX long steps back it returns
 * -LE_NOTSUP. */
struct unstream_view;
int unstream_view_create(enum packing packing, const struct format_input *in,
			 struct unstream_view **ret_view) CHECK_RESULT;
void unstream_view_destroy(struct unstream_view *v); /* NULL is fine */
/* Implements format_input.read; arg: the view. */
int64_t unstream_view_read(void *arg, void *buf, size_t len, uint64_t off);
/* Returns why a read has failed; `what` NULL or "": only its status says why. */
struct format_fault unstream_view_fault(const struct unstream_view *v);

#endif
