/*
 * The nodes of a job, as schedulers and MPI launchers write them. Plain functions; a list belongs
 * to whoever asked for it.
 *
 * Each node once, in the order of its first mention. Everything is bounded and nothing is guessed:
 * what is not understood is refused with the place where it is.
 */
#ifndef LEAT_BASE_HOSTLIST_H
#define LEAT_BASE_HOSTLIST_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define HOSTLIST_MAX      65536u /* nodes */
#define HOSTLIST_NAME_MAX 253u
#define HOSTLIST_TEXT_MAX (8u << 20)

enum hostlist_format {
	/* "node[001-004,7],x[1-2]y[3-4]": SLURM_JOB_NODELIST, and what a user types */
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
	/* of the parser */
	uint32_t cap, n_slots;
	uint32_t *slots;
};

/* -LE_INVAL with a sentence in err (may be NULL), -LE_NOMEM. A list of no node is refused. */
int hostlist_parse(enum hostlist_format format, const char *text, size_t len,
		   struct hostlist *ret_list, char *err, size_t err_size) CHECK_RESULT;
/* Any of them: what: "@FILE" or a path with a slash is a file of any of the formats (which one
 * shows in its lines), else a Slurm expression. */
int hostlist_read(const char *what, struct hostlist *ret_list, char *err,
		  size_t err_size) CHECK_RESULT;
/* The job that this process belongs to: SLURM_JOB_NODELIST, PBS_NODEFILE, PE_HOSTFILE, in this
 * order. -LE_NOENT: none of them is set. */
int hostlist_of_job(struct hostlist *ret_list, char *err, size_t err_size) CHECK_RESULT;
void hostlist_fini(struct hostlist *l);

#endif
