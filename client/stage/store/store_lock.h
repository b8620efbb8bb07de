/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of copies: flocks, which end with the process that holds them. Nothing here waits. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_LOCK_H
#define LEAT_CLIENT_STAGE_STORE_STORE_LOCK_H

#include "client/stage/store/local_store.h"

/* Takes the copy's exclusive lock; makes DIR/.leat. -LE_BUSY: another process, or another store
 * of this one, has it. Yields only to make the folder. */
int store_try_lock(struct local_store *s) CHECK_RESULT;
/* Returns whether a process holds the exclusive lock. */
bool store_is_locked(const struct local_store *s);
void store_unlock(struct local_store *s);
/* Takes the lock that keeps the copy from eviction; several may hold it. Returns a descriptor that
 * holds it until it is closed, or a status: -LE_NOENT if the copy has just been removed. */
int store_lease(const struct local_store *s) CHECK_RESULT;
/* Takes the lock under which free space is counted and reserved. Returns a descriptor that holds
 * it until it is closed, or -LE_BUSY. */
int store_lock_admission(const struct local_store *s) CHECK_RESULT;

/* For store_remove.c: the path of the lock file, and flock(2) of a file, which is made if it is
 * missing (how: LOCK_SH or LOCK_EX). Returns a descriptor, or -LE_BUSY. */
void store_lock_path(const struct local_store *s, char ret_path[STORE_PATH_SIZE]);
int store_flock(const struct local_store *s, const char *path, int how) CHECK_RESULT;

#endif
