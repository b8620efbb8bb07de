/*
 * Planted bugs: switches that break a protocol on purpose, so that a test can show that it
 * would notice. All off; only tests turn them on (fault_plant). One per class of bug.
 */
#ifndef LEAT_BASE_FAULT_H
#define LEAT_BASE_FAULT_H

#include <stdbool.h>

/* X(name, what it breaks) */
#define FAULT_TABLE(X)                                                                             \
	X(MDS_NO_DEDUPE, "a repeated mutation is executed again")                                  \
	X(MDS_EARLY_ACK, "a mutation is answered before its batch is durable")                     \
	X(OSS_NO_DEDUPE, "a repeated data write is executed again")                                \
	X(OSS_NO_GRACE, "a server that crashed serves before its clients have repeated")           \
	X(OSS_LATE,                                                                                \
	  "what comes after the grace time is repeated over what others have done since")          \
	X(OSS_UNORDERED, "what nobody has seen is repeated before what was accepted")              \
	X(OSS_EARLY_ACK, "a data write is answered before it is durable")                          \
	X(CHAIN_EARLY_ACK, "a version is committed before the members behind have it durably")     \
	X(CHAIN_SKIP_EPOCH, "members answer to any epoch of a chain")                              \
	X(CHAIN_NO_DEDUPE, "members behind do not remember answers")                               \
	X(CHAIN_LONE_ANSWER, "a member says that an answer is kept before the ones behind it do")  \
	X(CHAIN_SERVE_EARLY, "a version that is not committed is served")                          \
	X(CHAIN_STALE_LEADER, "a member that was away may lead")                                   \
	X(CHAIN_SKIP_LEASE, "a member serves on without a lease")                                  \
	X(CHAIN_REFUSE,                                                                            \
	  "no bug: members behind have no space for some writes, so they are aborted")             \
	X(CHAIN_FORGET_PENDING, "a new head drops the versions that it holds")                     \
	X(CHAIN_NO_REPAIR, "damage that a request meets is not repaired from other members")       \
	X(OSS_SKIP_NAMES, "a row that vanishes while its server runs is taken for a hole")         \
	X(OSS_SKIP_DOUBTS,                                                                         \
	  "several chunks that a cell of the ledger has lost are taken for holes")                 \
	X(OSS_FEW_CELLS, "no bug: a ledger has a few cells, so that one loses several chunks")     \
	X(SCRUB_REMOVE_LOST, "a scrub removes from members what the head has lost")                \
	X(CLIENT_NEW_SEQ, "a data write that is repeated gets another identity")                   \
	X(MDS_NO_RECALL, "what changes is not recalled from those who may cache it")               \
	X(CLIENT_OLD_LEASE, "a lease is taken from an answer that a recall has overtaken")         \
	X(CLIENT_KEEP_OPENS, "a recall is answered without telling what is open")                  \
	X(CLIENT_KEEP_LEASE, "leases outlive the metadata server that gave them")                  \
	X(CLIENT_OWN_CACHE, "what is being changed is answered from memory meanwhile")             \
	X(CLIENT_GIVE_UP, "what is withdrawn is said not to be done, and nobody is asked")         \
	X(CLIENT_UNTOLD, "a restarted metadata server is not told of writes that nobody sees yet") \
	X(OSS_NO_LEASES, "nobody waits for leases of chunks")                                      \
	X(OSS_NEW_HEAD, "a head does not wait for leases of chunks that another one gave")         \
	X(CLIENT_PAGES_UNSEEN, "who syncs pages does not wait for those who show older ones")      \
	X(CLIENT_STALE_PLACE, "an append writes where a file ended that has been cut since")       \
	X(CLIENT_TRUST_HOLES, "a hole is zeros, whether or not the file is cut meanwhile")

enum fault {
#define X(name, text) FAULT_##name,
	FAULT_TABLE(X)
#undef X
	N_FAULTS
};

extern bool fault_planted_[N_FAULTS];
#define FAULT(name) __builtin_expect(fault_planted_[FAULT_##name], 0)

/* "mds_no_dedupe"; false: no such switch. */
bool fault_plant(const char *name);
const char *fault_name(enum fault f);

#endif
