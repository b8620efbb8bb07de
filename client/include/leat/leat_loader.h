/*
 * The loader: shuffled batches of samples, exactly once per epoch, straight from verified copies or
 * from the servers into memory that the training code reads in place.
 *
 * The order is a pure function of seed, epoch, data set and position (client/loader/ORDER.md), so
 * what is needed next is known: worker fibers read ahead into slots of shared memory, and a batch
 * is handed out only when all its bytes are there and verified. A batch is a set of pointers into a
 * slot; the slot is used again when the last reference to the batch is gone.
 *
 * Results are 0, a count, or a negative status (leat_errno, leat_strerror of leat.h);
 * leat_last_error says what is behind it. Structs that begin with their size are zeroed and given
 * their size by the caller.
 *
 * Threads: a data set may be used by any threads at once; a loader by one thread at a time, except
 * that leat_batch_ref, leat_batch_unref, the leat_batch_ views, leat_loader_metrics and
 * leat_loader_event_fd may be called by any thread at any time. After fork() the child can only
 * read batches it has; every call that needs the library's threads fails there with the status of
 * EOPNOTSUPP.
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
	int status;         /* negative; 0: nothing failed yet */
	const char *origin; /* "local", "server", "decoder", "peer" or "" */
	uint64_t offset;    /* UINT64_MAX: the file as a whole */
	char path[4096];
	char message[512]; /* one sentence with path and offset */
};
/* Of the last failed call of this header in this thread. Valid until the next one. */
const struct leat_error *leat_last_error(void);

/* ---- data sets ---- */

enum leat_peers {
	LEAT_PEERS_AUTO =
		0, /* where they have a copy and what is read are not small parts of blocks */
	LEAT_PEERS_NEVER
};

struct leat_dataset_options {
	size_t size;
	/* Where it lies: this Leat namespace; NULL: the local file system. Must outlive the data
	 * set. */
	struct leat_fs *fs;
	/* Where staged copies are looked for first; NULL: nowhere. */
	const char *stage_dir;
	/* Where names are looked up; NULL: "/.leat/datasets". */
	const char *catalog;
	/* Loops that read and verify, each a thread; 0: 1. With fs the instance's own thread reads.
	 */
	uint32_t threads;
	/* Non-zero: do not verify staged copies. Otherwise every block is verified when it is first
	 * touched. What a name means is compared with its manifest whatever is said here. */
	int no_verify;
	/* What the samples are: "tar", "tfrecord", "mds", "ffrecord", "npz", "npy" (each row a
	 * sample), "fixed:BYTES", "fixed:BYTES+HEADER" or "files", whatever the files are called;
	 * NULL: of a path told by what most bytes of its files are, with a copy and without one; of
	 * a name what was said when it was made. */
	const char *format;
	/* enum leat_peers: of "name@version" with fs and without a copy here, are other nodes read
	 * from whose agents have a READY copy? Every byte of theirs is compared with the manifest;
	 * what they do not give comes from the servers. */
	int peers;
	/* Of files that are packed (gzip, zstd, lz4): what comes out of them is kept in memory, up
	 * to so many bytes of the files that were read last, 0: 1 GiB. Shards larger than that are
	 * refused. Where an order goes to more shards at a time than there is room for, each is
	 * unpacked again and again: leat stage in --unpack does it once. */
	uint64_t unpack_bytes;
};
/*
 * what: "name@version"; a directory (absolute); the path of a staged copy (DIR/.leat/ID or its
 * data/); a pattern for files of one directory ("/data/train-*.tar", the wildcards in the last
 * component only); a single file. What the files contain, not what they are called, says of which
 * format they are, and most bytes decide, not a single file among many: tar archives are WebDataset
 * shards (one field per extension), TFRecords, FFRecords (field "record"), shards of MosaicML
 * Streaming, NumPy archives (one field per array); else each file is a sample with the field
 * "data", and the first folder of its path is its class. What is left out leat_dataset_left
 * tells. A READY copy in stage_dir is preferred and kept from being
 * evicted; for a path one that was made of it in the same cluster (without fs: on this machine) and
 * that is not known to be stale.
 *
 * "name@version" is what its manifest says, byte by byte, wherever it is read: what has changed or
 * gone since is the status of ESTALE, with file and offset, when it is read. What is wrong in a
 * staged copy is read from other nodes or from what the copy was made of.
 *
 * A copy that was staged under that name serves it, as far as the metadata server does not say that
 * the name means other content by now; that is waited for one second. While it does not answer, and
 * without fs, a name without a version is refused.
 */
int leat_dataset_open(const char *what, const struct leat_dataset_options *opts,
		      struct leat_dataset **ret_dataset);
/* Loaders and batches keep what they need of it. NULL is fine. */
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
int leat_dataset_stat(const struct leat_dataset *ds, struct leat_dataset_stat *ret_stat);
/* Valid as long as the data set; NULL beyond the end. */
const char *leat_dataset_field(const struct leat_dataset *ds, uint32_t i);
/* What its bytes are: "" nothing known, "npy" a NumPy array with its header (leat_array_parse),
 * "<f4", "<f4[3,224,224]" elements of this type and shape, else what the format calls it. */
const char *leat_dataset_field_type(const struct leat_dataset *ds, uint32_t i);
const char *leat_dataset_class(const struct leat_dataset *ds, uint32_t i);
const char *leat_dataset_key(const struct leat_dataset *ds, uint64_t sample);
/* The path of a file, below that of the data set. */
const char *leat_dataset_file(const struct leat_dataset *ds, uint32_t i);
/* What no sample has anything of, for one reason and of one kind. The texts are valid as long as
 * the data set. */
struct leat_left {
	size_t size;
	const char *why;   /* "hidden": the name begins with a period; "format": not of the data
			      set's; "beside": beside class folders, which have none of its kind;
			      "member": of an archive, and no sample can be called after it */
	const char *kind;  /* the end of the names, "jpg"; "": various */
	const char *first; /* path of the first of them */
	uint64_t n, bytes; /* files or members; theirs */
};
/* The i-th entry; the status of ENOENT beyond the end. Of a mixture there are none. */
int leat_dataset_left(const struct leat_dataset *ds, uint32_t i, struct leat_left *ret_left);
/* Any samples, in the order asked for (repeats allowed), all their fields, as one batch. */
int leat_dataset_read(struct leat_dataset *ds, const uint64_t *samples, uint32_t n,
		      struct leat_batch **ret_batch);

/*
 * A weighted mixture of data sets, as a data set: of every 3 + 1 samples 3 are of a part of weight
 * 3 and 1 of a part of weight 1, each part shuffled and all its samples once before one comes
 * again, also across epochs (ORDER.md, "Mixtures"). Samples are numbered part by part, fields are
 * those of all parts, classes with the same name are one.
 */
struct leat_mix_part {
	struct leat_dataset *ds; /* stays the caller's; the mixture keeps what it needs of it */
	uint64_t weight;         /* 0: its number of samples */
};
struct leat_mix_options {
	size_t size;
	/* Positions of an epoch, cut to whole blocks of the sum of the weights (divided by their
	 * greatest common divisor); 0: about as many as all parts have samples. */
	uint64_t epoch;
	uint32_t threads; /* that read, as in leat_dataset_options */
};
/* At most 64 parts, none of them a mixture or without samples; those on a Leat file system on the
 * same one. opts NULL is fine. */
int leat_dataset_mix(const struct leat_mix_part *parts, uint32_t n_parts,
		     const struct leat_mix_options *opts, struct leat_dataset **ret_dataset);

/* ---- order ---- */

/* mode: "global", "window", "window:N", "sequential", "file". batch: the global batch, which
 * decides on the default window. */
int leat_order_open(const struct leat_dataset *ds, const char *mode, uint64_t seed, uint64_t epoch,
		    uint32_t batch, struct leat_order **ret_order);
/* The sample at a position of the epoch, or -1 beyond its end. Pure, any thread. */
int64_t leat_order_at(const struct leat_order *order, uint64_t position);
void leat_order_close(struct leat_order *order);

/* ---- loaders ---- */

enum leat_on_error {
	LEAT_ON_ERROR_RAISE = 0,
	LEAT_ON_ERROR_SKIP = 1
};

enum leat_pinned {
	LEAT_PINNED_AUTO = 0, /* where the thread that opens the loader has a CUDA context */
	LEAT_PINNED_NEVER,
	LEAT_PINNED_TRY,    /* where there is a CUDA driver, which is then started */
	LEAT_PINNED_REQUIRE /* without one leat_loader_open fails */
};

enum leat_direct {
	LEAT_DIRECT_NEVER = 0,
	LEAT_DIRECT_AUTO,
	LEAT_DIRECT_REQUIRE
};

/* What a decoder is called with. Pointers are good for the call only. */
struct leat_decode_call {
	size_t size;
	uint64_t sample;         /* number */
	int64_t label;           /* class, -1: none */
	const char *key, *field; /* names of the sample and of the field */
	const void *in;          /* the field's bytes: read, verified, unpacked */
	uint64_t in_len;
	void *out; /* in the batch's slot, at a multiple of 64 bytes */
	uint64_t out_max;
	char *error; /* room for a sentence for people, with NUL */
	size_t error_size;
};
/*
 * Turns a field's bytes into what the batch has in their place. Called by threads of the loader,
 * several at once, ahead of leat_next; it must not call this library. Returns how many bytes it
 * wrote to out, or -errno: then the sample is skipped or leat_next fails, as on_error says, with
 * file and offset and the words in error (origin "decoder").
 */
struct leat_decoder {
	const char *field;
	int64_t (*decode)(void *arg, const struct leat_decode_call *call);
	void *arg;
	uint64_t out_max; /* bytes that it may write, reserved for each sample; counts for
			     memory_limit */
};

struct leat_loader_options {
	size_t size;
	const char *order; /* NULL: "global" */
	const char *tail;  /* "drop" (NULL), "pad", "shorter" */
	uint64_t seed, epoch;
	uint32_t batch;       /* of all ranks together; world divides it */
	uint32_t rank, world; /* world 0: 1 */
	uint64_t epochs;      /* then leat_next ends; 0: for ever */
	/* Batches in memory, held ones included, 2..64. 0: up to 8, of which as many are read
	 * ahead as the longest waits of late ask for at the caller's pace. */
	uint32_t depth;
	uint64_t memory_limit; /* bytes of all batches, held ones included; 0: 1 GiB */
	int on_error; /* enum leat_on_error; SKIP: a sample that cannot be read shortens its batch
		       */
	const char *const *fields; /* NULL-terminated; NULL: all */
	/* Of each epoch only the steps phase, phase + stride, phase + 2 stride …: what one of
	 * several worker processes takes. stride 0: 1. leat_loader_set_state goes to the very step
	 * of the state and on from there in strides. */
	uint32_t stride, phase;
	/* enum leat_pinned: the memory of batches is registered with the CUDA driver (libcuda.so.1,
	 * looked for when it is wanted), so that copies to a device run beside the program and
	 * need no thread. */
	int pinned;
	/* "cuda:N", or "cuda": the device of the calling thread's context, else the first. Each
	 * batch is copied to it as soon as it is complete, see leat_batch_device; this takes as
	 * much device memory as batches have. The status of ENODEV where there is no such device.
	 * NULL: batches stay in host memory. */
	const char *device;
	/* Of a data set that is not staged and does not fit: keep up to cache_bytes of it in this
	 * folder of a local disk, dropping what is needed last. The ranks of a node may share it:
	 * cache_ranks of them, a block of that many (0: 1), each with its part of cache_bytes. A
	 * loader that finds it used by another job, or the disk full, logs so and goes on without.
	 */
	const char *cache_dir; /* NULL: no cache */
	uint64_t cache_bytes;
	uint32_t cache_ranks;
	const struct leat_decoder *decoders; /* n_decoders; one for a field at most */
	uint32_t n_decoders;
	uint32_t decode_threads; /* 0: 2 */
	/* How long one call of a decoder may take, 0: 10000. Then leat_next fails with the status
	 * of EBUSY and says which sample it is at, and leat_loader_close returns without it: data
	 * set, file system and the decoder's arg must then stay. */
	uint32_t decode_ms;
	/* enum leat_direct: batches are only read on the device, so those may be read there
	 * straight from local files, by cuFile (libcufile.so.0, looked for when it is wanted), in
	 * which the processor has nothing to look at: files whose blocks were verified before by
	 * this process, or of which nothing is known; no members with checksums of their own or
	 * packed, no decoder, no cache. Where that was measured to be quicker than through host
	 * memory, now and then anew; REQUIRE: leat_loader_open fails where there is no cuFile. The
	 * base that the views of such a batch give is NULL. */
	int direct;
};
int leat_loader_open(struct leat_dataset *ds, const struct leat_loader_options *opts,
		     struct leat_loader **ret_loader);
/* Batches stay valid until they are given back. NULL is fine. */
void leat_loader_close(struct leat_loader *ld);
/* Steps of one epoch, the same on every rank. */
uint64_t leat_loader_steps(const struct leat_loader *ld);

/*
 * The next batch: 1 and a reference to it. 0 at the end of an epoch; the call after that begins the
 * next one. Negative statuses: of a read error (raise), after which the same batch is tried again
 * by the next call; of EBUSY when the caller holds all slots or all memory, so that no batch can
 * ever come (leat_last_error says how many).
 */
int leat_next(struct leat_loader *ld, struct leat_batch **ret_batch);
/* The status of EAGAIN when none is ready; with a timeout: of ETIMEDOUT. */
int leat_try_next(struct leat_loader *ld, struct leat_batch **ret_batch);
int leat_next_within(struct leat_loader *ld, uint32_t timeout_ms, struct leat_batch **ret_batch);
/* Readable (poll, epoll) while leat_try_next would not say EAGAIN. Do not read from it. */
int leat_loader_event_fd(const struct leat_loader *ld);

/* Goes to the start of an epoch; does nothing if that is where it is. */
int leat_loader_set_epoch(struct leat_loader *ld, uint64_t epoch);
/* What was handed out so far, as JSON of at most 256 bytes with NUL; returns its length.
 * Independent of rank, depth and threads; world may be another when it is set. */
int leat_loader_state(struct leat_loader *ld, char *ret_json, size_t size);
/* Goes on from there. The status of EINVAL where it belongs to another data set, order or global
 * batch. */
int leat_loader_set_state(struct leat_loader *ld, const char *json);

/* ---- batches ---- */

void leat_batch_ref(struct leat_batch *b);
void leat_batch_unref(struct leat_batch *b); /* NULL is fine */
/* Samples in it: this rank's share, less those skipped. */
uint32_t leat_batch_len(const struct leat_batch *b);
uint64_t leat_batch_epoch(const struct leat_batch *b);
uint64_t leat_batch_step(const struct leat_batch *b);
const uint64_t *leat_batch_ids(const struct leat_batch *b);   /* sample numbers */
const int64_t *leat_batch_labels(const struct leat_batch *b); /* classes, -1: none */

struct leat_view {
	size_t size;
	const uint8_t *base;     /* of the slot; NULL: on the device only (direct) */
	const uint64_t *offsets; /* of each sample's bytes, from base; UINT64_MAX: the sample has no
				    such field */
	const uint64_t *lengths; /* in bytes */
	uint64_t n;              /* samples */
	int verified; /* every byte was checked against the checksum made when it was written */
};
/* One field, one entry per sample. Valid as long as a reference to the batch. -ENOENT's status: no
 * such field. */
int leat_batch_field(const struct leat_batch *b, const char *field, struct leat_view *ret_view);
/* All of a batch at once: what a binding needs to make its objects of one call. */
struct leat_batch_info {
	size_t size;
	uint64_t n, epoch, step; /* samples; where it stands */
	const uint64_t *ids;
	const int64_t *labels;
	const uint8_t *base; /* of the slot; NULL where it is empty */
	uint64_t len;
	/* Of each row r of n_fields: offsets[r * stride + i] and lengths[r * stride + i] are sample
	 * i's, as in struct leat_view, of field fields[r] of those that the loader reads (of
	 * leat_dataset_read: of the data set), counted in the order they were asked for, each once.
	 * With up to 64 fields each has a row, in that order; of more, those have one that a sample
	 * of the batch has. */
	const uint64_t *offsets, *lengths;
	uint64_t stride;
	uint32_t n_fields;
	int fd, verified;
	const uint32_t *fields;
};
/* Valid as long as a reference to the batch. */
void leat_batch_info(const struct leat_batch *b, struct leat_batch_info *ret_info);
/* A NumPy array in memory, as a field of type "npy" holds it. */
#define LEAT_DIMS_MAX 32
struct leat_array {
	size_t size;
	const void *data;
	uint64_t len;  /* bytes of data */
	char type[16]; /* as NumPy writes it: "<f4" */
	int fortran;   /* the first index moves fastest */
	uint32_t n_dims;
	uint64_t shape[LEAT_DIMS_MAX];
};
/* The status of EINVAL: not an array of plain numbers, or truncated. */
int leat_array_parse(const void *bytes, uint64_t len, struct leat_array *ret_array);
/*
 * Sample i of a field as an array in the slot, by the field's type: "npy" without its header,
 * "<f4[3,224]"; "|u1" of all its bytes where nothing is known of them or they are not what the type
 * says, and of what a decoder wrote. The status of ENOENT: the sample has no such field.
 */
int leat_batch_array(const struct leat_batch *b, const char *field, uint32_t i,
		     struct leat_array *ret_array);
/*
 * An array of the batch as a DLPack tensor (dlpack.h, its unversioned DLManagedTensor), which keeps
 * a reference to the batch until its deleter is called, from any thread. device: -1 where
 * array->data is host memory, which must lie in the slot; else the number of the CUDA device whose
 * address it is (leat_batch_device, which says what streams must do). The status of ENOTSUP for
 * numbers of the other byte order, of EINVAL for what DLPack has no type for.
 */
struct DLManagedTensor;
int leat_batch_dlpack(struct leat_batch *b, const struct leat_array *array, int device,
		      struct DLManagedTensor **ret_tensor);
/* Calls its deleter: for languages that cannot see into it. NULL is fine. */
void leat_dlpack_delete(struct DLManagedTensor *t);
/* The slot: address, length, and the memfd that it is a shared mapping of (borrowed). */
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
 * Of a loader with a device. `stream` (a CUstream of that device or what is one, a cudaStream_t;
 * NULL: the legacy default stream) waits for the copy, this call does not. The memory may be read
 * in that stream by what is put there before the batch's last reference is given back; the loader
 * waits for that before it uses the memory again. The stream must live until then. Call again for
 * other streams (at most 8). A failed copy is told here.
 */
int leat_batch_device(const struct leat_batch *b, void *stream, struct leat_device_view *ret_view);
/*
 * Copies the batch's bytes to device memory of the caller's, in `stream`: offsets of
 * leat_batch_field count from dst. Of a loader with a device or with pinned memory. The batch may
 * be given back at once. The status of ERANGE where room is too small.
 */
int leat_batch_copy(const struct leat_batch *b, uint64_t dst, uint64_t room, void *stream);

/* ---- metrics ---- */

/* Why leat_next had to wait. */
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
	uint64_t wait_us, busy_us; /* in leat_next; between two calls of it. Their share is the
				      accelerator's utilisation */
	uint64_t stall_us[LEAT_STALLS];
	uint64_t wait_histogram[LEAT_WAIT_BUCKETS]; /* bucket i: waits below 2^i us, the last one
						       the rest */
	uint32_t depth, ready, held, filling;
	uint64_t memory, memory_limit;
	uint64_t memory_pinned; /* registered with CUDA */
	uint64_t bytes_device;  /* copied to the device */
	/* Pieces of files that were in the disk cache or not; bytes read from it; what it holds and
	 * may hold; pieces that were damaged, and writes of it that failed. */
	uint64_t cache_hits, cache_misses, bytes_cache, cache_bytes, cache_limit;
	uint64_t cache_bad, cache_failed;
	uint64_t ahead; /* batches that may be ready or on their way at once */
	/* Of what other nodes have staged: bytes that came from them; how many of them may be
	 * asked now; how often one was left out for being slow or gone, or for wrong bytes. */
	uint64_t bytes_peer, peers, peers_dropped, peers_lied;
	/* Read straight into device memory; how fast, and how fast through host memory, when that
	 * was measured last; batches that failed and went the other way. */
	uint64_t bytes_direct, direct_mib_s, bounce_mib_s, direct_failed;
	/* Bytes that were wrong where they were read (a damaged block of a staged copy) and came
	 * from elsewhere; blocks of a named version that have changed at its source and are nowhere
	 * else; chunks (1 MiB) of the staged copy that were put right. */
	uint64_t bytes_mended, blocks_stale, chunks_healed;
};
int leat_loader_metrics(struct leat_loader *ld, struct leat_loader_metrics *ret_metrics);
/* XXH3 (64 bits) of these bytes: what blocks of files carry, for formats that lie on top. */
uint64_t leat_checksum(const void *bytes, uint64_t len);
/* "local", "server", "verify", "consumer", "start", "decode", "peer" */
const char *leat_stall_name(int stall);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
