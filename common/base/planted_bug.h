/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planted bugs: switches that break a protocol, so that a test can prove that it would detect that.
 * All are off; only tests turn them on (planted_bug_enable). One per class of bug.
 */
#ifndef LEAT_COMMON_BASE_PLANTED_BUG_H
#define LEAT_COMMON_BASE_PLANTED_BUG_H

#include <stdbool.h>

/* X(name, what it breaks) */
#define PLANTED_BUG_TABLE(X)                                                                       \
	X(MDS_NO_DEDUPE, "a repeated mutation is executed again")                                  \
	X(MDS_EARLY_ACK, "a mutation is answered before its batch is durable")                     \
	X(OSS_NO_DEDUPE, "a repeated data write is executed again")                                \
	X(OSS_NO_GRACE, "a crashed server serves before its clients have repeated their writes")   \
	X(OSS_LATE,                                                                                \
	  "a repetition after the grace period overwrites newer changes of other clients")         \
	X(OSS_UNORDERED, "unaccepted changes are repeated before the accepted ones")               \
	X(OSS_EARLY_ACK, "a data write is answered before it is durable")                          \
	X(CHAIN_EARLY_ACK, "a version is committed before the members downstream have it durably") \
	X(CHAIN_SKIP_EPOCH, "members answer to any epoch of a chain")                              \
	X(CHAIN_NO_DEDUPE, "members downstream do not store answers")                              \
	X(CHAIN_LONE_ANSWER, "an answer counts as stored before the members downstream have it")   \
	X(CHAIN_SERVE_EARLY, "a version that is not committed is served")                          \
	X(CHAIN_STALE_LEADER, "a stale member may lead")                                           \
	X(CHAIN_SKIP_LEASE, "a member continues to serve without a lease")                         \
	X(CHAIN_REFUSE,                                                                            \
	  "no bug: members downstream have no space for some writes, which are aborted")           \
	X(CHAIN_FORGET_PENDING, "a new head drops the versions that it holds")                     \
	X(CHAIN_NO_REPAIR, "damage that a request finds is not repaired from other members")       \
	X(OSS_SKIP_NAMES, "a row that is lost while its server runs is taken for a hole")          \
	X(OSS_SKIP_DOUBTS,                                                                         \
	  "several chunks that a cell of the inventory has lost are taken for holes")              \
	X(OSS_FEW_CELLS, "no bug: an inventory has few cells, so that one loses several chunks")   \
	X(SCRUB_REMOVE_LOST, "a scrub removes from members what the head has lost")                \
	X(CLIENT_NEW_SEQ, "a data write that is repeated gets another sequence number")            \
	X(MDS_LOSE_UNLOOKED, "targets are given up although files that are open have data there")  \
	X(MDS_LOSE_ZEROS, "a chain whose data was given up begins empty")                          \
	X(MDS_NO_RECALL, "a change recalls no lease from clients that may cache the inode")        \
	X(CLIENT_OLD_LEASE, "a lease is taken from an answer that a recall has overtaken")         \
	X(CLIENT_KEEP_OPENS, "a recall is answered without a report of what is open")              \
	X(CLIENT_KEEP_LEASE, "leases outlive the metadata server that gave them")                  \
	X(CLIENT_OWN_CACHE, "the cache answers for an inode while a change of it is in flight")    \
	X(CLIENT_GIVE_UP, "a cancelled request counts as not executed, without a query")           \
	X(CLIENT_UNTOLD, "a restarted metadata server gets no report of unflushed writes")         \
	X(OSS_NO_LEASES, "writes do not wait for leases of chunks")                                \
	X(OSS_NEW_HEAD, "a head does not wait for leases of chunks that another head gave")        \
	X(CLIENT_PAGES_UNSEEN, "a sync of pages does not wait for clients that show older ones")   \
	X(CLIENT_STALE_PLACE, "an append writes where a file ended that was truncated since")      \
	X(MDS_NO_ROWS, "replies of mutations do not outlive the metadata server")                  \
	X(MDS_LOSE_COUNTERS, "inode numbers given since the last start are given again")           \
	X(OSS_GRANT_DRIFT, "a grant that changes is not taken off what clients hold")              \
	X(OSS_FREE_SHARED, "a change also frees extents that the new record keeps")                \
	X(CHAIN_REUSE_NUMBER, "a head gives two versions of a chunk one number")                   \
	X(CHAIN_KEEP_EPOCH, "the members of a chain change without a new epoch")                   \
	X(RPC_ANY_REPLY, "a reply is taken by a later call that has its slot")                     \
	X(OSS_COUNT_OFF, "an awaited session that returns is counted off twice")                   \
	X(CLIENT_TRUST_HOLES, "a hole is zeros, even if the file is truncated meanwhile")          \
	X(CLIENT_KEEP_DATA, "a recall is answered before what was written is visible")             \
	X(MDS_FORGET_APPEND, "a reservation gives no append lease, so no truncation recalls it")   \
	X(MDS_UNHIDDEN, "a restarted server does not wait for leases that it does not know")       \
	X(MDS_UNSHARED, "a second writer does not make the size shared")                           \
	X(MDS_TRUST_SIZES, "sizes from before a truncation count")                                 \
	X(MDS_LEASE_ALONE, "the last writer gets a write lease, whoever has written before")       \
	X(LOADER_UNFILLED, "a batch is handed out before its bytes are read")                      \
	X(LOADER_UNRESERVED, "a slot takes memory that was not reserved within the limit")         \
	X(CACHE_KEEP_COUNT, "a piece that leaves the disk cache still counts as cached")           \
	X(STAGE_SKIP_CHUNKS, "a copy is complete without chunks of its plan")                      \
	X(SPREAD_NO_LIMIT, "any number of nodes is referred to one holder of a chunk")             \
	X(RANGES_OVERLAP, "a range is added beside the ranges that it overlaps")

enum planted_bug {
#define X(name, text) PLANTED_BUG_##name,
	PLANTED_BUG_TABLE(X)
#undef X
	N_PLANTED_BUGS
};

extern bool planted_bugs_[N_PLANTED_BUGS];
#define PLANTED_BUG(name) __builtin_expect(planted_bugs_[PLANTED_BUG_##name], 0)

/* Turns on the switch of that name ("mds_no_dedupe"). Returns false if there is none. */
bool planted_bug_enable(const char *name);

#endif
