/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a data set for two shuffled epochs and prints what was read: the loader in sixty lines.
 *
 *   read_dataset /nvme/.leat/ID/data        a staged copy, or any local directory
 *   read_dataset -l /datasets/train         straight from the servers of $LEAT_CONF
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <leat/leat.h>
#include <leat/leat_loader.h>

/* Stands for training: uses all samples of a batch in place. */
static uint64_t use(const struct leat_batch *batch, const char *field)
{
	struct leat_view view = {.size = sizeof(view)};
	uint64_t sum = 0;
	if (leat_batch_field(batch, field, &view) < 0)
		return 0;
	for (uint64_t i = 0; i < view.n; i++) {
		for (uint64_t k = 0; view.offsets[i] != UINT64_MAX && k < view.lengths[i]; k++)
			sum += view.base[view.offsets[i] + k];
	}
	return sum;
}

static int run(struct leat_dataset *ds)
{
	struct leat_loader_options options = {
		.size = sizeof(options), .batch = 32, .seed = 42, .tail = "shorter", .epochs = 2};
	struct leat_loader *loader;
	struct leat_batch *batch;
	uint64_t samples = 0, sum = 0;
	int rc = leat_loader_open(ds, &options, &loader);
	if (rc < 0)
		return rc;
	for (int epoch = 0; rc >= 0 && epoch < 2; epoch++) {
		while ((rc = leat_next(loader, &batch)) == 1) {
			samples += leat_batch_len(batch);
			sum += use(batch, leat_dataset_field(ds, 0));
			leat_batch_unref(batch);
		}
		if (rc == 0)
			printf("epoch %d: %" PRIu64 " samples so far, sum %" PRIu64 "\n", epoch,
			       samples, sum);
	}
	leat_loader_close(loader);
	return rc;
}

int main(int argc, char **argv)
{
	struct leat_dataset_options options = {.size = sizeof(options)};
	struct leat_dataset *ds;
	int remote = argc == 3 && strcmp(argv[1], "-l") == 0;
	if (argc != 2 + remote)
		return fprintf(stderr, "usage: read_dataset [-l] DIRECTORY\n"), 2;
	int rc = remote ? leat_open_fs(NULL, NULL, &options.fs) : 0;
	if (rc < 0)
		return fprintf(stderr, "read_dataset: %s\n", leat_strerror(rc)), 1;
	rc = leat_dataset_open(argv[1 + remote], &options, &ds);
	if (rc == 0) {
		rc = run(ds);
		leat_dataset_close(ds);
	}
	if (rc < 0)
		fprintf(stderr, "read_dataset: %s\n", leat_last_error()->message);
	if (options.fs)
		leat_close_fs(options.fs);
	return rc < 0;
}
