/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk of a simulated process. Inside of common/rt/sim only.
 */
#ifndef LEAT_COMMON_RT_SIM_SIM_DISK_H
#define LEAT_COMMON_RT_SIM_SIM_DISK_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/env_backend.h"

struct sim;
struct sim_disk;
struct sim_env;

struct sim_disk *sim_disk_create(struct sim *s);
void sim_disk_destroy(struct sim_disk *d);
/* Applies some of the unsynced changes and drops the others. */
void sim_disk_crash(struct sim_disk *d);
void sim_disk_set_full(struct sim_disk *d, bool full);
int sim_disk_corrupt(struct sim_disk *d, const char *path, uint64_t off, uint64_t len) CHECK_RESULT;
/* Frees the open files of an incarnation that has ended. */
void sim_disk_free_files(struct sim_env *e);
/* Fills the file functions into the table of the simulated env. */
void sim_disk_ops(struct env_ops *ops);

#endif
