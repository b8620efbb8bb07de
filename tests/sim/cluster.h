/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole Leat cluster in one process: the shipped mds, ossd and client code over the simulator.
 * One metadata server, N_OSSD object servers and a few clients. A fault plan crashes and restarts
 * them, cuts the network and damages frames; all faults are drawn from the seed.
 */
#ifndef LEAT_TESTS_SIM_CLUSTER_H
#define LEAT_TESTS_SIM_CLUSTER_H

#include <stdio.h>

#include "client/ll.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/sim/sim.h"
#include "mds/server.h"
#include "ossd/server.h"

#define N_OSSD      4
#define CLIENTS_MAX 4

struct plan {
	uint64_t seed;
	uint32_t n_clients;
	uint32_t n_ops; /* per client */
	bool crash_servers, crash_clients, cut_network, damage_frames;
	uint32_t replicas; /* most replicas of a directory; each has 1 to this number */
	bool move_members; /* targets are drained, and replaced when they are away for long */
	bool refuse;       /* members after the head refuse versions now and then */
	bool slow_disks;   /* so that many changes are in flight and not durable */
	bool damage;       /* disks damage what they hold, see damage.h */
	bool damaged;      /* with damage: no other fault, and requests always reach it first */
	bool contended;    /* all clients use a few cells of one file all the time; see shared.h */
	bool cuts;         /* with contended: files are truncated and extended; cuts.h */
	bool logs;         /* with cuts: every second operation is on the log; logs.h */
	bool seeks;        /* with cuts: a third of the operations look for data (SEEK_DATA) */
	bool late;         /* with contended: one replica, write-back writes, and the writer is cut
			    * off from a server that crashes; see shared.h */
	bool names;        /* with contended: a few names, and faults of the metadata server */
	bool lose;         /* targets are removed as lost; see lose.h */
	uint32_t log_max;  /* resync_log_max; 0: the default */
	bool late_copies;  /* many frames arrive twice, the second time much later */
	bool few_kept;     /* clients cache few inodes and names that are not in use */
	bool clocks;       /* wall clocks are wrong, and jump */
	bool verbose;
};

struct stores;
struct damage;

struct counters {
	uint64_t ops, shared_ops;
	uint64_t server_crashes, power_cuts, client_crashes, partitions, isolations, orders, fenced;
	uint64_t damages, losses, vanished, scrubs, repaired, differing; /* see damage.h */
	uint64_t lost;      /* syncs that reported lost data */
	uint64_t undecided; /* histories of names that the search could not decide in its bound */
	uint64_t withdrawn; /* changes of names that were cancelled: the program was killed */
	uint64_t given_up, lost_cells; /* see lose.h: removals ordered; reads that reported the
	                                * loss */
	uint64_t events, virtual_ms;
};

struct node {
	struct cluster *cluster;
	struct sim_proc *proc;
	struct loop *loop;
	char name[16], dir[24], addr[24];
	bool formatted, want_up, running;
	bool gone; /* the machine is lost: only the code that set this starts it */
	struct mds *mds;
	struct ossd *ossd;
	struct kv *kv; /* while it runs */
	struct client *client;
	uint64_t session; /* the client's first session */
};

struct cluster {
	struct plan plan;
	struct sim *sim;
	struct transport *transport;
	struct rpc_key key;
	struct node mds, ossd[N_OSSD], admin;
	struct node client[CLIENTS_MAX + 1]; /* the last client verifies */
	void (*client_main)(struct cluster *c, uint32_t index, struct client *client);
	/* Directories that all clients use: one for each number of replicas. Set by the
	 * workload. */
	struct ino shared_dir[3];
	uint32_t n_shared_dirs;
	struct stores *stores; /* while the disks of the servers are read */
	bool faults_on, admin_done;
	bool back_by_itself; /* a server that crashes is restarted, even after faults have ended */
	uint32_t n_cuts;     /* network cuts that have not healed */
	struct damage *damage;
	bool failed;
	char failure[512];
	struct counters count;
};

/* Formats, starts and registers the servers. A failure fails the run. */
int cluster_start(struct cluster *c, const struct plan *plan);
/* Starts a client process that mounts and then runs c->client_main(index). */
void cluster_start_client(struct cluster *c, uint32_t index);
void cluster_crash(struct node *n);
/* Crashes the node as one of the faults: it restarts after for_us, or when faults end. */
void cluster_crash_for(struct node *n, uint64_t for_us);
/* Crashes every object server that runs, and every second time the metadata server too. */
void cluster_cut_power(struct cluster *c);
/* Restarts the server, whatever the state of its process. */
void cluster_restart(struct node *n);
/* Cuts the node off from server or client i (servers first, then the metadata server). */
void cluster_cut_from(struct node *n, uint64_t i, uint64_t for_us);
/* Begins to draw faults. */
void cluster_start_faults(struct cluster *c);
/* Ends faults, heals the network and starts every server. Then waits until every chain is whole. */
void cluster_heal(struct cluster *c);
/* Crashes all servers, runs the offline checks, compares members of chains, starts all again. */
void cluster_compare_stores(struct cluster *c);
/* Steps until the predicate holds; fails the run after limit_s virtual seconds. */
void cluster_run(struct cluster *c, bool (*until)(void *arg), void *arg, uint64_t limit_s);
/* Crashes all servers and runs the offline checks on what their disks hold. */
void cluster_check_stores(struct cluster *c);
/* Prints the ids of all chunks on all disks; the cluster is of no use afterwards. */
void cluster_dump_chunks(struct cluster *c);
/* Records the first failure; the run ends. The failure of a fenced client (it was silent while
 * other clients needed what it had a lease on) does not count: the client is treated as crashed. */
void cluster_fail(struct cluster *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Does not return if the client in whose fiber this runs has been fenced. */
void cluster_end_fenced(struct cluster *c);

#endif
