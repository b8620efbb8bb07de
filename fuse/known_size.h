/* How long the kernel takes files to be of which it shows pages without a lease: known_size.c. */
#ifndef LEAT_FUSE_KNOWN_SIZE_H
#define LEAT_FUSE_KNOWN_SIZE_H

#include <sys/types.h>

#include "common/proto/types.h"

struct leatfs;
struct known_size;

/* One for all who have the file open; put takes NULL. NULL without memory. */
struct known_size *known_size_get(struct leatfs *fs, struct ino ino);
void known_size_put(struct leatfs *fs, struct known_size *k);
/* Is it certain that the kernel takes the file to be no longer than that? */
bool known_size_within(const struct known_size *k, uint64_t end);
/* Makes it so, perhaps: read again and ask again; begun_us: 0 at first. Yields. A status of what
 * failed. */
int known_size_ask(struct leatfs *fs, struct known_size *k, uint64_t end, uint64_t *begun_us)
	CHECK_RESULT;
/* A short reply is about to be sent, that reaches so far; what it has filled has gone. */
void known_size_shown(struct known_size *k, uint64_t end);
void known_size_gone(struct leatfs *fs, struct known_size *k);
/* The kernel is about to be told that size, at the request of that thread: waits, for
 * CHUNK_LEASE_MS at most, until it shows no zeros there; who asks for known_size_ask gets less
 * instead. True: has waited. untold: it would wait. grown: by what the kernel writes itself. */
bool known_size_tell(struct leatfs *fs, struct ino ino, pid_t who, uint64_t era,
		     uint64_t *size);
/* Now, when a request for attributes begins, for its known_size_tell; 0: does not matter. */
uint64_t known_size_era(const struct leatfs *fs, struct ino ino);
bool known_size_untold(const struct leatfs *fs, struct ino ino, uint64_t size);
void known_size_grown(struct leatfs *fs, struct ino ino, uint64_t size);

/* size_probe.c: the process that known_size_ask starts: PROBE_SIZE mountpoint node end. */
#define PROBE_SIZE "--probe-size"
int size_probe(char **argv);

#endif
