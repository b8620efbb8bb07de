/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a job, in the formats of schedulers and MPI launchers. Plain functions; a list
 * belongs to the caller.
 *
 * Each node is in the list once, in the order of first mention. All sizes are bounded. Unknown
 * input is refused with its place, never guessed.
 */
#ifndef LEAT_COMMON_BASE_HOSTLIST_H
#define LEAT_COMMON_BASE_HOSTLIST_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define HOSTLIST_MAX      65536u /* nodes */
#define HOSTLIST_NAME_MAX 253u
#define HOSTLIST_TEXT_MAX (8u << 20)

enum hostlist_format {
	/* "node[001-004,7],x[1-2]y[3-4]": SLURM_JOB_NODELIST, and arguments of users */
	HOSTLIST_SLURM,
	/* one name a line, as often as it has slots: PBS_NODEFILE */
	HOSTLIST_PBS,
	/* "name slots queue processors" a line: PE_HOSTFILE */
	HOSTLIST_SGE,
	/* "name slots=4 max_slots=8" a line, # comments: mpirun --hostfile */
	HOSTLIST_OPENMPI,
	/* "name:4 binding=..." a line, # comments: mpiexec -f */
	HOSTLIST_HYDRA
};

struct hostlist {
	char **names;
	uint32_t n;
	/* used by the parser */
	uint32_t cap, n_slots;
	uint32_t *slots;
};

/* Parses text. Returns 0; -LE_INVAL with a sentence in err (may be NULL), also for an empty list;
 * -LE_NOMEM. */
int hostlist_parse(enum hostlist_format format, const char *text, size_t len,
		   struct hostlist *ret_list, char *err, size_t err_size) CHECK_RESULT;
/* Parses `what`. "@FILE" or a path with a slash is a file of any of the formats, which is detected
 * from its lines; anything else is a Slurm expression. Returns like hostlist_parse(). */
int hostlist_read(const char *what, struct hostlist *ret_list, char *err,
		  size_t err_size) CHECK_RESULT;
/* Returns the nodes of the job that this process belongs to, from SLURM_JOB_NODELIST, PBS_NODEFILE
 * or PE_HOSTFILE, in this order. -LE_NOENT: none of them is set; else like hostlist_parse(). */
int hostlist_of_job(struct hostlist *ret_list, char *err, size_t err_size) CHECK_RESULT;
void hostlist_fini(struct hostlist *l);

#endif
