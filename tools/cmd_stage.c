/* SPDX-License-Identifier: Apache-2.0 */
/* leat stage: verified copies of data sets in local directories. The table of its verbs. */
#include <string.h>

#include "common/base/assert.h"
#include "tools/stage_args.h"
#include "tools/stage_verbs.h"

static const struct stage_verb verbs[] = {
	{"in", stage_cmd_in,
	 "to catalog capacity timeout verify order window wait detach max-rate lease ttl evict "
	 "progress scheduler placement nodes agent unpack together listen skip",
	 1, 1, false},
	{"out", stage_cmd_out, "timeout max-rate replace progress skip", 2, 2, false},
	{"plan", stage_cmd_plan, "to catalog capacity", 1, 1, true},
	{"wait", stage_cmd_wait, "to timeout wait", 1, 1, true},
	{"status", stage_cmd_status, "to", 0, 1, true},
	{"ls", stage_cmd_ls, "to", 0, 0, true},
	{"path", stage_cmd_path, "to share", 1, 1, true},
	{"verify", stage_cmd_verify, "to progress", 1, 1, true},
	{"pin", stage_cmd_pin, "to", 1, 1, true},
	{"unpin", stage_cmd_unpin, "to", 1, 1, true},
	{"lease", stage_cmd_lease, "to lease ttl", 1, 1, true},
	{"release", stage_cmd_release, "to lease nodes", 0, 1, true},
	{"evict", stage_cmd_evict, "to", 1, 1, true},
	{"gc", stage_cmd_gc, "to capacity free dry-run", 0, 0, true},
	{"cancel", stage_cmd_cancel, "to", 1, 1, true},
	{"where", stage_cmd_where, "", 0, 1, false},
	{"events", stage_cmd_events, "to follow", 0, 1, true},
};

/* For `leat stage VERB --help`. */
static bool option_of(const char *verb, const char *option)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verb, verbs[i].name) == 0)
			return stage_verb_knows(&verbs[i], option);
	return false;
}

static int run(struct tool *t, int argc, char **argv)
{
	static struct stage_args a;

	if (argc < 2)
		return tool_usage(t, "give a verb: in, out, plan, wait, status, ls, path, "
				     "verify, pin, unpin, lease, release, evict, gc, cancel, "
				     "where or events");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[1], verbs[i].name) != 0)
			continue;
		int code = stage_args_parse(t, &verbs[i], argc - 1, argv + 1, &a);
		return code == EXIT_OK ? verbs[i].run(t, &a) : stage_exit(&a, code);
	}
	return tool_usage(t, "unknown verb '%s'", argv[1]);
}

const struct command command_stage = {
	.name = "stage",
	.summary = "verified copies of data sets on local disks",
	.option_of = option_of,
	.usage =
		"usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
		"  in SOURCE        make a copy; returns when it is ready\n"
		"  out DIR SOURCE   copy a local directory to one of the namespace\n"
		"  plan SOURCE      what `in` would copy, and whether it fits; changes nothing\n"
		"  wait WHAT        wait until it is ready\n"
		"  status [WHAT]    is it ready? (0 yes, 3 no)\n"
		"  ls               list the copies\n"
		"  path WHAT        print the directory of its files\n"
		"  verify WHAT      read and verify all of it\n"
		"  pin, unpin WHAT  protect it from eviction, and undo that\n"
		"  evict WHAT       remove it\n"
		"  lease WHAT       lease it to a job (--lease JOB)\n"
		"  release [WHAT]   release the leases of a job (--lease JOB)\n"
		"  gc               free space (--free SIZE, --capacity SIZE, --dry-run)\n"
		"  cancel WHAT      stop the process that makes it\n"
		"  where [NAME]     list the nodes that have it\n"
		"  events           print past events; --follow: and new ones\n"
		"SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
		"namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
		"The copy is plain files; ready means that every block was verified and synced.\n"
		"After an interruption, even by kill -9, the same command continues.\n"
		"  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
		"DIR:DIR2)\n"
		"  --capacity SIZE  refuse when all copies there would exceed SIZE together\n"
		"  --evict          free space by evicting unused copies\n"
		"  --timeout S      time limit; copied data is kept\n"
		"  --wait UNTIL     ready, first-window or none: return at that point, continue "
		"in\n"
		"                   the background\n"
		"  --detach         the same as --wait none\n"
		"  --order ORDER    seed=N,batch=N,world=N,rank=N-N,epoch=N,mode=M: copy in the "
		"order\n"
		"                   in which these ranks read; --window SIZE: the first window "
		"(1G)\n"
		"  --nodes LIST     the agents of these nodes make copies: HOST[:PORT],...,\n"
		"                   n[1-4,7], @HOSTFILE or @ (the nodes of this job); each chunk "
		"is\n"
		"                   read from the servers once. --agent: one node. With release:\n"
		"                   these agents release their copies\n"
		"  --max-rate RATE  limit for reading from the source, bytes per second\n"
		"  --placement HOW  with --nodes: replicate, spread[:N] (each file on N of them), "
		"partition,\n"
		"                   auto (spread where --capacity is too small for all)\n"
		"  --together N     as --nodes without agents: N processes on as many nodes (@: "
		"the\n"
		"                   nodes of this job), started by srun or the like, exchange\n"
		"                   chunks; --listen ADDRESS\n"
		"  --unpack         every .tar, .tar.gz, .tar.zst, .tar.lz4 becomes a folder of\n"
		"                   its members, in a separate copy NAME@VERSION.unpacked; the\n"
		"                   archives are not kept\n"
		"  --lease JOB      lease to a job until release, or for --ttl SECONDS\n"
		"  --verify HOW     readback: read all data back from the disk before ready\n"
		"  --progress HOW   auto, plain (a line every 10 s), json (one object a line), "
		"none\n"
		"  --scheduler NAME slurm-prolog, sge, pbs: exit with 0 in any case\n"
		"  --skip WHAT      links, special or links,special: links that lead out of the\n"
		"                   tree or to nothing, and devices, sockets, pipes, are left "
		"out\n"
		"                   without exit status 5\n"
		"  --replace        out: replace an existing directory, as a whole and in one "
		"step\n"
		"  --catalog PATH   the catalogue of data sets (leat:/.leat/datasets)\n"
		"Examples:\n"
		"  leat stage in imagenet@v1 --to /local/nvme\n"
		"  cd \"$(leat stage path imagenet@v1 --to /local/nvme)\"\n"
		"  leat stage out /local/run7 /mnt/leat/results/run7\n",
	.run = run,
};
