/* How long the kernel takes files to be of which it shows pages without a lease: known_size.c. */
#ifndef LEAT_FUSE_KNOWN_SIZE_H
#define LEAT_FUSE_KNOWN_SIZE_H

#include <sys/types.h>

#include "common/base/list.h"
#include "common/proto/types.h"

struct leatfs;
struct known_size;

/* One for all who have the file open; put takes NULL. NULL without memory. */
struct known_size *known_size_get(struct leatfs *fs, struct ino ino);
void known_size_put(struct known_size *k);
/* Is it certain that the kernel takes the file to be no longer than that? */
bool known_size_within(const struct known_size *k, uint64_t end);
/* Makes it so, perhaps: read again and ask again; begun_us: 0 at first. Yields. -LE_INTR;
 * -LE_IO when nobody can be asked. */
int known_size_ask(struct known_size *k, uint64_t end, uint64_t *begun_us) CHECK_RESULT;
/* From when a READ for pages comes until it is answered. */
struct known_read {
	struct list link;
	struct known_size *k; /* NULL: of no interest */
	uint64_t seq;
};
void known_size_read(struct leatfs *fs, struct ino ino, struct known_read *r);
void known_size_answered(struct known_read *r);
/* A former daemon may have left pages of the file, which go: -LE_NOMEM. drop: all of them; yields,
 * and does not wait until they are gone, but what is queued behind it does. */
int known_size_former(struct leatfs *fs, struct ino ino) CHECK_RESULT;
void known_size_drop_former(struct leatfs *fs);
/* A short reply is about to be sent, that reaches so far; what it has filled has gone. */
void known_size_shown(struct known_size *k, uint64_t end);
void known_size_gone(struct known_size *k);

/* The kernel is about to be told that size, at the request of that thread: waits, for
 * CHUNK_LEASE_MS at most, until it shows no zeros there; who asks for known_size_ask gets less
 * instead. True: has waited. begun_us: what begin has given when the request came; 0: the kernel
 * believes the answer, whatever came between. untold: it would wait. */
uint64_t known_size_begin(struct leatfs *fs, struct ino ino, pid_t who);
bool known_size_tell(struct leatfs *fs, struct ino ino, pid_t who, uint64_t begun_us,
		     uint64_t *size);
bool known_size_untold(const struct leatfs *fs, struct ino ino, uint64_t size);

/* What the kernel does about its size by itself. busy to idle: something is under way at whose end
 * it will not believe what it has asked for before; NULL: of no interest. wait: until that would
 * not be in vain what somebody asks for known_size_ask; yields. forget_attr: so too; it is told so
 * (attributes only: takes no lock of a page). grown, emptied: by the reply that is about to be
 * sent. */
struct known_size *known_size_busy(struct leatfs *fs, struct ino ino);
void known_size_idle(struct known_size *k);
void known_size_wait(struct known_size *k);
void known_size_forget_attr(struct leatfs *fs, struct ino ino);
void known_size_grown(struct leatfs *fs, struct ino ino, uint64_t size);
void known_size_emptied(struct leatfs *fs, struct ino ino);

/* Has the kernel ask for owner and group of an inode that it has, and returns when it believes
 * them; -LE_TIMEDOUT and others: perhaps it does not. Yields. */
int known_owner_ask(struct leatfs *fs, struct ino ino) CHECK_RESULT;

/* size_probe.c: a process that tells the kernel: PROBE_SIZE mountpoint. */
#define PROBE_SIZE "--probe-size"
struct probe_file {
	uint64_t node, end;
};
/* What the kernel believes in; or why it cannot be asked. */
struct probe_answer {
	uint64_t size;
	uint32_t uid, gid, err;
};
int size_probe(char **argv);
void known_size_fini(struct leatfs *fs);

#endif
