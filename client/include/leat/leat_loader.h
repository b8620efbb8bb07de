/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader: shuffled batches of samples, each sample exactly once per epoch, read from
 * verified copies or from the servers into memory that the training program reads in place.
 *
 * The order of samples is a pure function of seed, epoch, data set and position
 * (client/loader/ORDER.md), so the loader reads ahead into slots of shared memory. It hands a
 * batch out when all its bytes are in memory and verified. A batch points into its slot; the
 * slot is reused when the last reference to the batch is released.
 *
 * Results: a call returns 0, a count, or a negative status (leat_errno, leat_strerror of
 * leat.h); leat_last_error gives the reason. Where a comment says "fails with ENOENT",
 * leat_errno of the status is ENOENT. Structs that begin with their size are zeroed and given
 * their size by the caller. Texts and pointers of options are borrowed for the call unless a
 * comment says otherwise.
 *
 * Threads: several threads may use a data set concurrently. One thread at a time may use a
 * loader, but any thread at any time may call leat_batch_ref, leat_batch_unref, the functions
 * that view a batch, leat_loader_metrics and leat_loader_event_fd. After fork(2) the child can
 * only read batches that it has; every call that needs the threads of the library fails there
 * with EOPNOTSUPP.
 */
#ifndef LEAT_LOADER_H
#define LEAT_LOADER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct leat_fs; /* a connection to a Leat cluster, see leat.h */
struct leat_dataset;
struct leat_loader;
struct leat_batch;
struct leat_order;

/* ---- errors ---- */

struct leat_error {
	int status;         /* negative; 0: no call has failed yet */
	const char *origin; /* "local", "server", "decoder", "peer" or "" */
	uint64_t offset;    /* UINT64_MAX: the whole file */
	char path[4096];
	char message[512]; /* one sentence with path and offset */
};
/* Returns the error of the last call of this header that failed in this thread. Valid until the
 * next failure in this thread. */
const struct leat_error *leat_last_error(void);

/* ---- data sets ---- */

enum leat_peers {
	LEAT_PEERS_AUTO =
		0, /* if they have a copy and reads are not small parts of blocks */
	LEAT_PEERS_NEVER
};

struct leat_dataset_options {
	size_t size;
	/* The Leat namespace that holds the data; NULL: the local file system. Must outlive the
	 * data set. */
	struct leat_fs *fs;
	/* The directory of staged copies, which are preferred; NULL: none. */
	const char *stage_dir;
	/* The directory of names; NULL: "/.leat/datasets". */
	const char *catalog;
	/* Threads that read and verify; 0: 1. With fs the thread of the instance reads. */
	uint32_t threads;
	/* Non-zero: staged copies are not verified. Otherwise every block is verified when it is
	 * read for the first time. Data of a name is compared with its manifest in any case. */
	int no_verify;
	/* The format of the samples: "tar", "tfrecord", "mds", "ffrecord", "npz", "npy" (each
	 * row is a sample), "fixed:BYTES", "fixed:BYTES+HEADER" or "files". NULL: for a path the
	 * format of most bytes of its files, with or without a copy; for a name the format it
	 * was created with. */
	const char *format;
	/* enum leat_peers: whether "name@version" with fs and without a copy on this node is
	 * read from other nodes, if their agents have a READY copy. All bytes from them are
	 * compared with the manifest; the servers send the other bytes. */
	int peers;
	/* Limit for the unpacked contents of packed files (gzip, zstd, lz4) in memory, in bytes;
	 * 0: 1 GiB. A larger shard is refused. If an order uses more shards at a time than fit,
	 * each is unpacked repeatedly; `leat stage in --unpack` unpacks them once. */
	uint64_t unpack_bytes;
};
/*
 * Opens a data set, which leat_dataset_close closes. what: "name@version"; a directory (absolute);
 * the path of a staged copy (DIR/.leat/ID or its data/); a pattern for files of one directory
 * ("/data/train-*.tar", with wildcards in the last component only); or a single file. opts may be
 * NULL.
 *
 * The contents of the files determine the format, not their names; the format with most bytes is
 * used, and a single file does not outvote many. Tar archives are WebDataset shards (one field per
 * extension); TFRecords and FFRecords have the field "record"; shards of MosaicML Streaming have
 * their own fields; NumPy archives have one field per array. In any other case each file is a
 * sample with the field "data", and the first folder of its path is its class. leat_dataset_left
 * lists files that no sample uses.
 *
 * A READY copy in stage_dir is preferred, and not evicted while it is used. For a path it must be a
 * copy of this path in the same cluster (without fs: on this machine) that is not marked as stale.
 * For a name it must be a copy of that name, unless the metadata server returns that the name means
 * other content by now; the call waits one second for its answer. If it does not answer, or without
 * fs, a name without a version is refused.
 *
 * Data of "name@version" is compared with its manifest wherever it is read. A read of data that has
 * changed or disappeared fails with ESTALE, with file and offset. A damaged block of a staged copy
 * is read from other nodes or from the source of the copy.
 */
int leat_dataset_open(const char *what, const struct leat_dataset_options *opts,
		      struct leat_dataset **ret_dataset);
/* Closes the data set. Its loaders and batches stay valid. ds may be NULL. */
void leat_dataset_close(struct leat_dataset *ds);

struct leat_dataset_stat {
	size_t size;
	uint64_t samples, files, bytes; /* bytes of all fields */
	uint64_t order_word;            /* of ORDER.md */
	uint32_t n_fields, n_classes;
	char id[65];        /* of the manifest, "" without one */
	char format[16];    /* "tar", "tfrecord", "mds", "ffrecord", "npz", "npy", "fixed", "files",
			       "mixture" */
	char source[16];    /* "copy", "local", "server", "mixture" */
	char path[4096];    /* where the files are read; "" for a mixture */
	uint64_t positions; /* of an epoch: its samples, or those of a mixture's epoch */
	uint64_t packed;    /* files that are packed as a whole, and unpacked when they are read */
};
/* Returns the properties of the data set. */
int leat_dataset_stat(const struct leat_dataset *ds, struct leat_dataset_stat *ret_stat);
/* Returns the name of field i, valid as long as the data set; NULL beyond the last one. */
const char *leat_dataset_field(const struct leat_dataset *ds, uint32_t i);
/* Returns the type of field i: "" unknown; "npy" a NumPy array with its header (leat_array_parse);
 * "<f4" or "<f4[3,224,224]" elements of this type and shape; else the name that the format has for
 * it. Valid as long as the data set; NULL beyond the last field. */
const char *leat_dataset_field_type(const struct leat_dataset *ds, uint32_t i);
/* Returns the name of class i, valid as long as the data set; NULL beyond the last one. */
const char *leat_dataset_class(const struct leat_dataset *ds, uint32_t i);
/* Returns the key of a sample, valid as long as the data set; NULL beyond the last one. */
const char *leat_dataset_key(const struct leat_dataset *ds, uint64_t sample);
/* Returns the path of file i below that of the data set, valid as long as the data set; NULL beyond
 * the last one. */
const char *leat_dataset_file(const struct leat_dataset *ds, uint32_t i);
/* Files, or members of archives, that no sample uses, for one reason and of one kind. The texts are
 * valid as long as the data set. */
struct leat_left {
	size_t size;
	const char *why;   /* "hidden": the name begins with a period; "format": of another format
			      than the data set; "beside": beside class folders, which have no file
			      of its kind; "member": of an archive, with a name that gives no key */
	const char *kind;  /* the end of the names, "jpg"; "": various */
	const char *first; /* path of the first of them */
	uint64_t n, bytes; /* files or members; their bytes */
};
/* Returns entry i of what no sample uses. Fails with ENOENT beyond the last one. A mixture has no
 * entries. */
int leat_dataset_left(const struct leat_dataset *ds, uint32_t i, struct leat_left *ret_left);
/* Reads n samples with all their fields, in the given order and with repetitions, as one batch,
 * which the caller releases with leat_batch_unref. */
int leat_dataset_read(struct leat_dataset *ds, const uint64_t *samples, uint32_t n,
		      struct leat_batch **ret_batch);

struct leat_mix_part {
	struct leat_dataset *ds; /* the caller may close it while the mixture is in use */
	uint64_t weight;         /* 0: its number of samples */
};
struct leat_mix_options {
	size_t size;
	/* Positions of an epoch, rounded down to whole blocks of the sum of the weights (divided by
	 * their greatest common divisor); 0: about as many as all parts have samples. */
	uint64_t epoch;
	uint32_t threads; /* as in struct leat_dataset_options */
};
/* Makes a weighted mixture of data sets, which is a data set too. With weights 3 and 1, of every
 * 4 samples 3 are of the first part and 1 of the second. Each part is shuffled, and all its
 * samples come once before any comes again, also across epochs (ORDER.md, "Mixtures"). Samples
 * are numbered part by part; the fields are those of all parts; classes with the same name are
 * one class. At most 64 parts; no part may be a mixture or have no samples; parts in Leat must
 * be in one file system. opts may be NULL. */
int leat_dataset_mix(const struct leat_mix_part *parts, uint32_t n_parts,
		     const struct leat_mix_options *opts, struct leat_dataset **ret_dataset);

/* ---- order ---- */

/* Opens the order of one epoch, which leat_order_close closes. mode: "global", "window",
 * "window:N", "sequential" or "file". batch: samples of a batch of all ranks; the default window
 * depends on it. */
int leat_order_open(const struct leat_dataset *ds, const char *mode, uint64_t seed, uint64_t epoch,
		    uint32_t batch, struct leat_order **ret_order);
/* Returns the number of the sample at a position of the epoch, or -1 beyond its end. Any thread may
 * call it. */
int64_t leat_order_at(const struct leat_order *order, uint64_t position);
/* Closes the order and frees it. */
void leat_order_close(struct leat_order *order);

/* ---- loaders ---- */

enum leat_on_error {
	LEAT_ON_ERROR_RAISE = 0,
	LEAT_ON_ERROR_SKIP = 1
};

enum leat_pinned {
	LEAT_PINNED_AUTO = 0, /* if the thread that opens the loader has a CUDA context */
	LEAT_PINNED_NEVER,
	LEAT_PINNED_TRY,    /* if there is a CUDA driver, which the loader initializes */
	LEAT_PINNED_REQUIRE /* leat_loader_open fails without a CUDA driver */
};

enum leat_direct {
	LEAT_DIRECT_NEVER = 0,
	LEAT_DIRECT_AUTO,
	LEAT_DIRECT_REQUIRE
};

/* The argument of a decoder. Its pointers are valid during the call. */
struct leat_decode_call {
	size_t size;
	uint64_t sample;         /* number of the sample */
	int64_t label;           /* class, -1: none */
	const char *key, *field; /* names of the sample and of the field */
	const void *in;          /* the bytes of the field: read, verified, unpacked */
	uint64_t in_len;
	void *out;        /* in the slot of the batch, at a multiple of 64 bytes */
	uint64_t out_max; /* bytes of space at out */
	char *error;      /* receives a sentence for people, NUL-terminated, of error_size bytes */
	size_t error_size;
};
/*
 * Converts the bytes of a field to the bytes that the batch contains. Threads of the loader call
 * `decode` concurrently, ahead of leat_next; it must not call this library. It returns the number
 * of bytes that it wrote to out, or -errno. After -errno the sample is skipped or leat_next fails,
 * as on_error says, with file, offset, and the text in error (origin "decoder").
 */
struct leat_decoder {
	const char *field;
	int64_t (*decode)(void *arg, const struct leat_decode_call *call);
	void *arg;
	uint64_t out_max; /* bytes that it may write, reserved for each sample and counted in
			     memory_limit */
};

struct leat_loader_options {
	size_t size;
	const char *order; /* NULL: "global" */
	const char *tail;  /* "drop" (NULL), "pad", "shorter" */
	uint64_t seed, epoch;
	uint32_t batch;       /* samples of a batch of all ranks; a multiple of world */
	uint32_t rank, world; /* world 0: 1 */
	uint64_t epochs;      /* number of epochs; 0: no limit */
	/* Batches in memory, 2..64, including those that the program holds. 0: up to 8; how many of
	 * them are read ahead follows from the longest recent waits and the pace of the caller. */
	uint32_t depth;
	/* Limit for all batches, including those that the program holds, in bytes; 0: 1 GiB. */
	uint64_t memory_limit;
	int on_error; /* enum leat_on_error; SKIP: a batch lacks the samples that cannot be read */
	const char *const *fields; /* names with a NULL after the last; NULL: all fields */
	/* Only the steps phase, phase + stride, phase + 2 stride ... of each epoch are read: the
	 * part of one of several worker processes. stride 0: 1. leat_loader_set_state moves to
	 * the step of the state and continues from there in strides. */
	uint32_t stride, phase;
	/* enum leat_pinned: whether the memory of batches is registered with the CUDA driver
	 * (libcuda.so.1, loaded when it is needed), so that copies to a device are asynchronous. */
	int pinned;
	/* "cuda:N"; or "cuda": the device of the calling thread's context, else the first one.
	 * Each batch is copied there when it is complete (leat_batch_device), which needs as
	 * much device memory as the batches have. leat_loader_open fails with ENODEV if there is
	 * no such device. NULL: batches stay in host memory. */
	const char *device;
	/* A folder of a local disk that caches up to cache_bytes of a data set that is not staged;
	 * the data that is needed last is dropped first. cache_ranks ranks of a node (0: 1), with
	 * consecutive numbers, may share it, each with its part of cache_bytes. A loader that finds
	 * it in use by another job, or the disk full, logs that and works without it. */
	const char *cache_dir; /* NULL: no cache */
	uint64_t cache_bytes;
	uint32_t cache_ranks;
	const struct leat_decoder *decoders; /* n_decoders, at most one for a field */
	uint32_t n_decoders;
	uint32_t decode_threads; /* 0: 2 */
	/* Limit for one call of a decoder, 0: 10000. After it leat_next fails with EBUSY and names
	 * the sample, and leat_loader_close returns without waiting for the decoder: data set, file
	 * system and the decoder's arg must then stay. */
	uint32_t decode_ms;
	/* enum leat_direct: whether batches may be read from local files to the device without a
	 * copy in host memory, by cuFile (libcufile.so.0, loaded when it is needed). AUTO does
	 * so if it was measured to be faster, and repeats the measurement from time to time;
	 * REQUIRE: leat_loader_open fails without cuFile. Direct reads are possible if the
	 * processor need not process the data: for files without checksums, or with blocks that
	 * this process has verified before; not with a decoder, a cache, packed members or
	 * members with checksums. The base in the views of such a batch is NULL. */
	int direct;
};
/* Opens a loader, which starts to read ahead; leat_loader_close closes it. */
int leat_loader_open(struct leat_dataset *ds, const struct leat_loader_options *opts,
		     struct leat_loader **ret_loader);
/* Closes the loader. Batches stay valid until they are released. ld may be NULL. */
void leat_loader_close(struct leat_loader *ld);
/* Returns the number of steps of one epoch, the same on every rank. */
uint64_t leat_loader_steps(const struct leat_loader *ld);

/*
 * Waits for the next batch. Returns 1 and a reference to it, which leat_batch_unref releases; or 0
 * at the end of an epoch, after which the next call begins the next epoch. Fails with the status of
 * a read error (LEAT_ON_ERROR_RAISE); the next call then tries the same batch again. Fails with
 * EBUSY if the caller holds all slots or all memory, so that no batch can become ready;
 * leat_last_error has the numbers.
 */
int leat_next(struct leat_loader *ld, struct leat_batch **ret_batch);
/* Like leat_next, but does not wait: fails with EAGAIN if no batch is ready. */
int leat_try_next(struct leat_loader *ld, struct leat_batch **ret_batch);
/* Like leat_next, but waits at most timeout_ms: fails with ETIMEDOUT after that. */
int leat_next_within(struct leat_loader *ld, uint32_t timeout_ms, struct leat_batch **ret_batch);
/* Returns a descriptor for poll(2) and epoll(7) that is readable unless leat_try_next would fail
 * with EAGAIN. It belongs to the loader; do not read from it. */
int leat_loader_event_fd(const struct leat_loader *ld);

/* Moves the loader to the start of an epoch; does nothing if the loader is at that start. */
int leat_loader_set_epoch(struct leat_loader *ld, uint64_t epoch);
/* Writes the position of the loader to ret_json as JSON, at most 256 bytes with NUL, and returns
 * its length. It does not depend on rank, depth and threads, and may be set with another world. */
int leat_loader_state(struct leat_loader *ld, char *ret_json, size_t size);
/* Continues from a position. Fails with EINVAL if it belongs to another data set, order or
 * batch. */
int leat_loader_set_state(struct leat_loader *ld, const char *json);

/* ---- batches ---- */

/* Takes a reference to the batch. */
void leat_batch_ref(struct leat_batch *b);
/* Releases a reference; the last one releases the memory of the batch. b may be NULL. */
void leat_batch_unref(struct leat_batch *b);
/* Returns the number of samples: the part of this rank, without samples that were skipped. */
uint32_t leat_batch_len(const struct leat_batch *b);
/* Return the epoch of the batch, and its step in the epoch. */
uint64_t leat_batch_epoch(const struct leat_batch *b);
uint64_t leat_batch_step(const struct leat_batch *b);
/* Returns the numbers of the samples, valid as long as a reference to the batch. */
const uint64_t *leat_batch_ids(const struct leat_batch *b);
/* Returns the classes of the samples, -1 for none, valid as long as a reference to the batch. */
const int64_t *leat_batch_labels(const struct leat_batch *b);

struct leat_view {
	size_t size;
	const uint8_t *base;     /* of the slot; NULL: the batch is on the device only (direct) */
	const uint64_t *offsets; /* of each sample, in bytes from base; UINT64_MAX: the sample has
				    no such field */
	const uint64_t *lengths; /* of each sample, in bytes */
	uint64_t n;              /* samples */
	int verified; /* every byte was compared with the checksum from when it was written */
};
/* Returns one field of all samples, in the order of the batch. Valid as long as a reference to the
 * batch. Fails with ENOENT if there is no such field. */
int leat_batch_field(const struct leat_batch *b, const char *field, struct leat_view *ret_view);
/* A batch with all its fields, for bindings of other languages. */
struct leat_batch_info {
	size_t size;
	uint64_t n, epoch, step; /* samples; position */
	const uint64_t *ids;
	const int64_t *labels;
	const uint8_t *base; /* of the slot; NULL: it is empty */
	uint64_t len;        /* bytes of the slot */
	/* Tables of n_fields rows: row r is field fields[r], and offsets[r * stride + i] and
	 * lengths[r * stride + i] are those of sample i, as in struct leat_view. Fields are
	 * numbered in the order in which the loader was given them (leat_dataset_read: as in the
	 * data set), each once. With up to 64 fields each has a row, in that order; with more,
	 * those that a sample of the batch has. */
	const uint64_t *offsets, *lengths;
	uint64_t stride;
	uint32_t n_fields;
	int fd, verified; /* the memfd of the slot; as in struct leat_view */
	const uint32_t *fields;
};
/* Returns all fields of the batch in one call. Valid as long as a reference to the batch. */
void leat_batch_info(const struct leat_batch *b, struct leat_batch_info *ret_info);
#define LEAT_DIMS_MAX 32
/* An array of numbers in memory. */
struct leat_array {
	size_t size;
	const void *data;
	uint64_t len;  /* bytes of data */
	char type[16]; /* as NumPy writes it: "<f4" */
	int fortran;   /* the first index moves fastest */
	uint32_t n_dims;
	uint64_t shape[LEAT_DIMS_MAX];
};
/* Parses a NumPy array with its header, as a field of type "npy" contains it; the result points
 * into `bytes`. Fails with EINVAL if it is truncated or not an array of plain numbers. */
int leat_array_parse(const void *bytes, uint64_t len, struct leat_array *ret_array);
/*
 * Returns a field of sample i as an array in the slot, by the type of the field: for "npy" the
 * array without its header, for "<f4[3,224]" an array of that type and shape. All bytes are
 * returned as "|u1" if the type is unknown, if they do not match it, or if a decoder wrote them.
 * Valid as long as a reference to the batch. Fails with ENOENT if the sample has no such field.
 */
int leat_batch_array(const struct leat_batch *b, const char *field, uint32_t i,
		     struct leat_array *ret_array);
struct DLManagedTensor;
/*
 * Returns an array of the batch as a DLPack tensor (dlpack.h, the unversioned DLManagedTensor). The
 * tensor holds a reference to the batch until its deleter is called, from any thread. device: -1 if
 * array->data is host memory, which must be in the slot; else the number of the CUDA device to
 * which the address belongs (see leat_batch_device for streams). Fails with ENOTSUP for numbers of
 * the other byte order, with EINVAL for types that DLPack does not have.
 */
int leat_batch_dlpack(struct leat_batch *b, const struct leat_array *array, int device,
		      struct DLManagedTensor **ret_tensor);
/* Calls the deleter of a tensor, for languages that cannot call it. t may be NULL. */
void leat_dlpack_delete(struct DLManagedTensor *t);
/* Returns the slot of the batch: address, length in bytes, and the memfd that is mapped there,
 * which belongs to the library. Valid as long as a reference to the batch. */
void leat_batch_memory(const struct leat_batch *b, const void **ret_base, uint64_t *ret_len,
		       int *ret_fd);

/* ---- devices ---- */

/* A batch in device memory. */
struct leat_device_view {
	size_t size;
	uint64_t base; /* device address: offsets of leat_batch_field count from here */
	uint64_t len;
	int device; /* its number */
};
/*
 * Returns the device memory of a batch of a loader with a device. `stream` (a CUstream or
 * cudaStream_t of that device; NULL: the legacy default stream) waits for the copy; this call does
 * not. Work that is put into the stream before the last reference to the batch is released may read
 * the memory; the loader waits for that work before it reuses the memory. The stream must exist
 * until then. Call it again for each other stream, at most 8. Fails if the copy has failed.
 */
int leat_batch_device(const struct leat_batch *b, void *stream, struct leat_device_view *ret_view);
/*
 * Copies a batch of a loader with a device or with pinned memory to device memory of the caller, in
 * `stream`; offsets of leat_batch_field count from dst. The batch may be released immediately.
 * room: bytes available at dst. Fails with ERANGE if they are too few.
 */
int leat_batch_copy(const struct leat_batch *b, uint64_t dst, uint64_t space, void *stream);

/* ---- metrics ---- */

/* The causes of waits in leat_next. */
enum leat_stall {
	LEAT_STALL_LOCAL,
	LEAT_STALL_SERVER,
	LEAT_STALL_VERIFY,
	LEAT_STALL_CONSUMER,
	LEAT_STALL_START,
	LEAT_STALL_DECODE,
	LEAT_STALL_PEER,
	LEAT_STALLS
};
#define LEAT_WAIT_BUCKETS 24
struct leat_loader_metrics {
	size_t size;
	uint64_t batches, samples, skipped;
	uint64_t bytes_local, bytes_server, bytes_verified, errors;
	uint64_t wait_us, busy_us; /* in leat_next; between two calls of it. busy_us of their sum is
				      the utilisation of the accelerator */
	uint64_t stall_us[LEAT_STALLS];
	uint64_t wait_histogram[LEAT_WAIT_BUCKETS]; /* bucket i: waits below 2^i us; the last:
						     * all longer waits */
	uint32_t depth, ready, held, filling;
	uint64_t memory, memory_limit;
	uint64_t memory_pinned; /* registered with CUDA */
	uint64_t bytes_device;  /* copied to the device */
	/* The cache on disk: pieces of files that it had or did not have; bytes read from it; bytes
	 * that it holds and may hold; pieces that were damaged, and writes that failed. */
	uint64_t cache_hits, cache_misses, bytes_cache, cache_bytes, cache_limit;
	uint64_t cache_bad, cache_failed;
	uint64_t ahead; /* batches that may be ready or in flight at a time */
	/* Other nodes: bytes read from them; nodes in use; how often a node was dropped because
	 * it was slow or did not answer, and because its bytes were wrong. */
	uint64_t bytes_peer, peers, peers_dropped, peers_lied;
	/* Reads straight into device memory: bytes; the last measured speed of direct reads, and
	 * of reads through host memory; batches that failed and were read through host memory. */
	uint64_t bytes_direct, direct_mib_s, bounce_mib_s, direct_failed;
	/* Bytes of damaged blocks of a staged copy that were read from elsewhere; blocks of a named
	 * version that have changed at its source and exist nowhere else; chunks (1 MiB) of the
	 * staged copy that were repaired. */
	uint64_t bytes_mended, blocks_stale, chunks_healed;
};
/* Returns the counters of a loader. Does not block. */
int leat_loader_metrics(struct leat_loader *ld, struct leat_loader_metrics *ret_metrics);
/* Returns the XXH3 checksum (64 bits) of len bytes, as the blocks of files have it. */
uint64_t leat_checksum(const void *bytes, uint64_t len);
/* Returns the name of a cause (enum leat_stall): "local", "server", "verify", "consumer", "start",
 * "decode" or "peer". */
const char *leat_stall_name(int stall);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
