/*
 * A packed file (gzip, Zstandard, LZ4) as what is in it: forward as a stream, or as a format reads
 * it, which goes forward too but for a few steps. Memory is bounded whatever the file says of
 * itself; nothing that it declares is believed. Owned by one fiber, which yields in reads; where
 * there is a loop, workers unpack.
 */
#ifndef LEAT_LOADER_UNSTREAM_H
#define LEAT_LOADER_UNSTREAM_H

#include "client/loader/formats/format.h"

/* So much may come out of one file: more is no archive that anybody made on purpose. */
#define UNSTREAM_MAX ((uint64_t)1 << 36)

struct unstream;

/* in: the packed file, the caller's as long as the stream. -LE_NOTSUP: no library for it. */
int unstream_create(enum packing packing, const struct format_input *in,
		    struct unstream **ret_stream) CHECK_RESULT;
void unstream_destroy(struct unstream *s); /* NULL is fine */
/* The next len bytes, fewer only at the end. What in->read returns; -LE_CORRUPT, -LE_NOTSUP with
 * *ret_fault, whose offset is that in the packed file. */
int64_t unstream_next(struct unstream *s, void *buf, size_t len, struct format_fault *ret_fault);
/* How many bytes come out of all of it. -LE_FBIG: more than UNSTREAM_MAX. */
int unstream_measure(enum packing packing, const struct format_input *in, uint64_t *ret_size,
		     struct format_fault *ret_fault) CHECK_RESULT;

/* For formats: reads at any offset, going back far only a few times. */
struct unstream_view;
int unstream_view_create(enum packing packing, const struct format_input *in,
			 struct unstream_view **ret_view) CHECK_RESULT;
void unstream_view_destroy(struct unstream_view *v); /* NULL is fine */
/* As format_input.read; arg: the view. */
int64_t unstream_view_read(void *arg, void *buf, size_t len, uint64_t off);
/* Why a read failed; what NULL or "": what its status says. */
struct format_fault unstream_view_fault(const struct unstream_view *v);

#endif
