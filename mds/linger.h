/*
 * What a rename replaced stays for a moment as an orphan, even if nobody has it open: whoever
 * looked the name up just before can still open what he found (OPEN_ORPHAN), so that a name which
 * is always there can always be opened. Bounded: what does not fit goes at once.
 */
#ifndef LEAT_MDS_LINGER_H
#define LEAT_MDS_LINGER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct mds;
struct open_file;

#define LINGER_MAX 16384u /* a power of two */

struct linger {
	struct {
		struct ino ino;
		uint64_t until_us;
	} ring[LINGER_MAX];
	uint64_t first, next; /* positions, ever growing */
	struct waitq work;
};

void linger_init(struct linger *l);
/* False: there is no room. Does not yield. */
bool linger_add(struct mds *m, struct ino ino);
/* Its last name was taken away by a rename, just now. */
bool linger_wanted(const struct open_file *f);
/* The fiber's body. */
void linger_run(struct mds *m);

#endif
