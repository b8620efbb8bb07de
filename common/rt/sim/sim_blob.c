/* SPDX-License-Identifier: Apache-2.0 */
/* A table of 4 KiB pages; see the header. */
#include "common/rt/sim/sim_blob.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

void sim_blob_fini(struct sim_blob *b)
{
	for (uint64_t i = 0; i < b->n_pages; i++)
		free(b->pages[i]);
	free(b->pages);
	*b = (struct sim_blob){0};
}

size_t sim_blob_read(const struct sim_blob *b, void *buf, size_t len, uint64_t off)
{
	uint8_t *p = buf;
	if (off >= b->size)
		return 0;
	if (len > b->size - off)
		len = b->size - off;
	for (size_t done = 0; done < len;) {
		uint64_t i = (off + done) / PAGE;
		size_t in = (off + done) % PAGE;
		size_t n = PAGE - in < len - done ? PAGE - in : len - done;
		if (i < b->n_pages && b->pages[i] != NULL)
			memcpy(p + done, b->pages[i] + in, n);
		else
			memset(p + done, 0, n);
		done += n;
	}
	return len;
}

static int reserve_pages(struct sim_blob *b, uint64_t n)
{
	if (n <= b->n_pages)
		return 0;
	n = n > 2 * b->n_pages ? n : 2 * b->n_pages;
	uint8_t **pages = realloc(b->pages, n * sizeof(*pages));
	if (pages == NULL)
		return -LE_NOMEM;
	memset(pages + b->n_pages, 0, (n - b->n_pages) * sizeof(*pages));
	b->pages = pages;
	b->n_pages = n;
	return 0;
}

/* Writes the part within one page. */
static int write_page(struct sim_blob *b, uint64_t i, size_t in, const uint8_t *data, size_t n)
{
	if (data == NULL) {
		if (i >= b->n_pages || b->pages[i] == NULL)
			return 0;
		memset(b->pages[i] + in, 0, n);
		if (n == PAGE) {
			free(b->pages[i]);
			b->pages[i] = NULL;
		}
		return 0;
	}
	TRY(reserve_pages(b, i + 1));
	if (b->pages[i] == NULL) {
		b->pages[i] = calloc(1, PAGE);
		if (b->pages[i] == NULL)
			return -LE_NOMEM;
	}
	memcpy(b->pages[i] + in, data, n);
	return 0;
}

int sim_blob_write(struct sim_blob *b, const void *data, uint64_t len, uint64_t off)
{
	const uint8_t *p = data;
	for (uint64_t done = 0; done < len;) {
		size_t in = (off + done) % PAGE;
		size_t n = PAGE - in < len - done ? PAGE - in : len - done;
		TRY(write_page(b, (off + done) / PAGE, in, p != NULL ? p + done : NULL, n));
		done += n;
	}
	if (len > 0 && off + len > b->size)
		b->size = off + len;
	return 0;
}

int sim_blob_resize(struct sim_blob *b, uint64_t size)
{
	/* Zero what lies after the new end, as it must read as zeros when the file grows again. */
	uint64_t old = b->size;
	if (size < old) {
		uint64_t end = b->n_pages * PAGE;
		uint64_t to = old < end ? old : end;
		if (size < to)
			TRY(sim_blob_write(b, NULL, to - size, size));
	}
	b->size = size;
	return 0;
}

int sim_blob_copy(struct sim_blob *dst, const struct sim_blob *src)
{
	sim_blob_fini(dst);
	for (uint64_t i = 0; i < src->n_pages; i++) {
		if (src->pages[i] != NULL)
			TRY(write_page(dst, i, 0, src->pages[i], PAGE));
	}
	dst->size = src->size;
	return 0;
}

uint64_t sim_blob_used(const struct sim_blob *b)
{
	uint64_t n = 0;
	for (uint64_t i = 0; i < b->n_pages; i++)
		n += b->pages[i] != NULL;
	return n * PAGE;
}
