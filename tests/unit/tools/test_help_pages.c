/* SPDX-License-Identifier: Apache-2.0 */
/* What --help prints for each command, and for a single verb; and what `leat help` prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"

static const struct run_row cluster_rows[] = {
	{"status --help", 0,
	 "usage: leat status [--check] [--net] [--memory] [--agent ADDR] [--timeout S] "
	 "[PATH]\n"
	 "Shows the metadata server and all targets. With a PATH, its mount too.\n"
	 "  --check       exit with 3 unless every target is up and answers, clocks\n"
	 "                agree, and the disk of the metadata server has space\n"
	 "  --net         connections: of the mount at PATH, of the agent, or of every "
	 "server\n"
	 "  --memory      what the memory of each server, and of the mount, is used for\n"
	 "  --agent ADDR  shows an agent too\n"
	 "  --timeout S   how long to wait for the metadata server (5)\n"
	 "Examples:\n"
	 "  leat status /mnt/leat\n"
	 "  leat status --net /mnt/leat\n"
	 "  leat status --json | jq '.targets[] | select(.state != \"up\")'\n",
	 ""},
	{"df --help", 0,
	 "usage: leat df [PATH ...]\n"
	 "Without PATH: the space of every target and of the whole cluster. With PATHs:\n"
	 "that of the mounts they lie on.\n"
	 "Examples:\n"
	 "  leat df\n"
	 "  leat df --json /mnt/leat | jq .mounts[0].avail\n",
	 ""},
	{"layout --help", 0,
	 "usage: leat layout get PATH ...\n"
	 "       leat layout set [--width N] [--chunk-size SIZE] [--replicas N]\n"
	 "                       [--compression off|lz4] PATH ...\n"
	 "       leat layout set --replicas N --existing PATH ...\n"
	 "       leat layout stop PATH ...\n"
	 "A file is divided into chunks, which are striped over N chains. The layout of a\n"
	 "directory applies to files that are created in it later. The layout of a file "
	 "can be\n"
	 "set while it has no data; --existing converts files that have.\n"
	 "  --width N           chains of a file\n"
	 "  --chunk-size SIZE   a power of two from 64K to 64M\n"
	 "  --replicas N        copies of the data, 1 to 3, on different hosts\n"
	 "  --compression lz4   compress blocks if that saves space; off: do not\n"
	 "  --existing          convert existing files too, in the background: each while\n"
	 "                      it is closed and has not changed for a minute. Ctrl-C ends\n"
	 "                      the display of the progress, stop ends the conversion\n"
	 "Examples:\n"
	 "  leat layout get /mnt/leat/data\n"
	 "  leat layout set --width 4 --chunk-size 4M /mnt/leat/checkpoints\n"
	 "  leat layout set --replicas 2 --existing /mnt/leat/results\n",
	 ""},
	{"quota --help", 0,
	 "usage: leat quota set [--bytes SIZE] [--bytes-soft SIZE] [--inodes N]\n"
	 "                      [--inodes-soft N] [--adopt] DIRECTORY ...\n"
	 "       leat quota show PATH ...\n"
	 "       leat quota ls\n"
	 "       leat quota rm DIRECTORY ...\n"
	 "Limits the space and the inodes below a directory, for all users together; 0: no\n"
	 "limit. Existing files are counted. A quota below another one is separate from it.\n"
	 "ls lists all quotas of the file system and needs no mount; users other than "
	 "root see\n"
	 "quotas of directories that they could find by listing.\n"
	 "  --bytes SIZE        space, as du counts it\n"
	 "  --inodes N          files, directories, links\n"
	 "  --bytes-soft SIZE, --inodes-soft N\n"
	 "                      may be exceeded for quota_grace_s (a week)\n"
	 "  --adopt             count the existing files again (after an interruption)\n"
	 "Examples:\n"
	 "  leat quota set --bytes 10T --inodes 5000000 /mnt/leat/projects/vision\n"
	 "  leat quota show /mnt/leat/projects/*\n"
	 "  leat quota ls\n",
	 ""},
	{"export --help", 0,
	 "usage: leat export ls\n"
	 "       leat export add [--ro] [--root-squash|--all-squash] [--anon-uid N]\n"
	 "                       [--anon-gid N] NETWORK\n"
	 "       leat export rm NETWORK\n"
	 "The most specific row with a client's address restricts the client; a client in "
	 "no\n"
	 "row is not restricted. NETWORK: 10.1.0.0/16, 10.1.2.3, fd00:1::/32. A change "
	 "takes\n"
	 "effect immediately, also for existing mounts; object servers that have not "
	 "confirmed\n"
	 "the change are named, and the exit status is 5.\n"
	 "  --ro              clients cannot change anything\n"
	 "  --root-squash     root and its group become the anonymous user\n"
	 "  --all-squash      all users do\n"
	 "  --anon-uid N, --anon-gid N\n"
	 "                    the anonymous user and group (65534)\n"
	 "Examples:\n"
	 "  leat export add --ro --root-squash 10.20.0.0/16\n"
	 "  leat export add 10.20.0.7\n"
	 "  leat export ls\n",
	 ""},
	{"scrub --help", 0,
	 "usage: leat scrub start|stop|status [--target N]\n"
	 "Object servers read all their data, compare it with its checksums and with the "
	 "other\n"
	 "copies, and repair damaged blocks from good copies. A scrub continues after a\n"
	 "restart. Without --target: all targets. UNCOMPARED: chunks that were not compared\n"
	 "with a copy whose server was down or did not answer; with a * the members of "
	 "chains\n"
	 "have changed meanwhile, and another scrub compares the chunks that this one did "
	 "not.\n"
	 "Exit status 7: some blocks could not be repaired.\n"
	 "Examples:\n"
	 "  leat scrub start\n"
	 "  leat scrub status --target 3 --json\n",
	 ""},
	{"fsck --help", 0,
	 "usage: leat fsck [--repair WHAT[,WHAT...]] [--window N]\n"
	 "Compares inodes, directory entries, and the chunks of all copies, and prints each\n"
	 "error. Nothing is changed without --repair:\n"
	 "  --repair WHAT  entries, links, names, orphans, sizes, copies, or all\n"
	 "  --window N     inodes in memory at a time, about 90 bytes each (1048576)\n"
	 "Exit status, added up: 0 sound, 1 repaired, 4 errors are left, 8 not everything\n"
	 "could be checked, 16 wrong usage, 32 interrupted.\n"
	 "Examples:\n"
	 "  leat fsck\n"
	 "  leat fsck --repair=orphans,links --json\n",
	 ""},
	{"target --help", 0,
	 "usage: leat target list [--all]\n"
	 "       leat target drain|undrain|remove|add|recover ID\n"
	 "       leat target remove --lost [--accept-loss] [--list FILE] ID [ID...]\n"
	 "       leat target rebalance\n"
	 "A target joins when its leat-ossd starts for the first time, and leaves in two "
	 "steps:\n"
	 "  drain      moves its copies to other targets, which takes a while and stops\n"
	 "             nothing; a drain continues when the command ends, undrain ends it\n"
	 "  remove     ends the membership of a target that is in no chain, or that\n"
	 "             holds no data; afterwards only `list --all` shows it\n"
	 "  add        takes a removed target back, empty\n"
	 "  rebalance  moves copies to targets that have few, until the command ends\n"
	 "  remove --lost  gives up targets that are down and will not come back, all of\n"
	 "             them together. Data with copies on other targets is copied again\n"
	 "             immediately. If files would lose data, the command names them and\n"
	 "             changes nothing, unless --accept-loss is given: reading lost data\n"
	 "             is an error then. --list: a file for the names of all. Continues\n"
	 "             when the command ends\n"
	 "  recover    takes back a target that was given up, when its disk has returned:\n"
	 "             lost files can be read again. The target drops data that has other\n"
	 "             copies or was removed meanwhile. A file that was being written when\n"
	 "             the target was lost may end in zeros\n"
	 "Examples:\n"
	 "  leat target drain 3 && leat target remove 3\n"
	 "  leat target remove --lost 4 7\n"
	 "  leat target list --json\n",
	 ""},
};

static void help_of_commands_for_servers(void **state)
{
	(void)state;
	run_table(cluster_rows, ARRAY_SIZE(cluster_rows));
}

static const struct run_row local_rows[] = {
	{"mount --help", 0,
	 "usage: leat mount [-o OPTION[=VALUE],...] [SOURCE] MOUNTPOINT\n"
	 "       leat mount --upgrade MOUNTPOINT\n"
	 "Mounts the namespace of a cluster. SOURCE: host:port of the metadata server;\n"
	 "without it, as leat.conf says. Options: see mount.leat(8). --upgrade replaces the\n"
	 "daemon of a mount by the installed one; programs wait meanwhile.\n"
	 "Examples:\n"
	 "  leat mount /mnt/leat\n"
	 "  leat mount -o ro mds1:7440 /mnt/leat\n"
	 "  leat mount --upgrade /mnt/leat\n",
	 ""},
	{"umount --help", 0,
	 "usage: leat umount [--lazy] MOUNTPOINT\n"
	 "Unmounts, and waits until the daemon of the mount has ended. Works also if the "
	 "daemon\n"
	 "has died.\n"
	 "  -l, --lazy   unmount for new users now, for others when they have\n"
	 "               closed their files\n"
	 "Example: leat umount /mnt/leat\n",
	 ""},
	{"cp --help", 0,
	 "usage: leat cp [-r] [-a] [-p] [-n] [-T] [-j N] FROM ... TO\n"
	 "Copies files, and with -r directories, concurrently, from and to Leat mounts and\n"
	 "the local file system; leat:/PATH is in the namespace. Links are copied as links,\n"
	 "holes stay holes. A file gets its name when it is complete; an existing file is\n"
	 "replaced, never written into. A failure is reported, the other files are copied,\n"
	 "and the exit status is 1.\n"
	 "  -r, -R, --recursive  directories too\n"
	 "  -a, --archive        -r, and keep mode, owner, times, attributes, access lists,\n"
	 "                       several names of a file\n"
	 "  -p                   keep mode, owner and times\n"
	 "  -n, --no-clobber     existing files stay\n"
	 "  -T, --no-target-directory\n"
	 "                       TO is the copy, even if it is a directory\n"
	 "  -j N, --jobs N       operations in flight (64)\n"
	 "Examples:\n"
	 "  leat cp -a /data/pictures /mnt/leat/\n"
	 "  leat cp -r leat:/run7 /local/results\n",
	 ""},
	{"rm --help", 0,
	 "usage: leat rm [-r] [-f] [-j N] PATH ...\n"
	 "Removes files, and with -r directories with their contents, concurrently and "
	 "without\n"
	 "confirmation. PATH lies on a Leat mount, or is leat:/PATH in the namespace. A "
	 "failure\n"
	 "is reported, the other files are removed, and the exit status is 1.\n"
	 "  -r, -R, --recursive  directories too\n"
	 "  -f, --force          a missing file is no error\n"
	 "  -j N, --jobs N       operations in flight (64)\n"
	 "Examples:\n"
	 "  leat rm -r /mnt/leat/run6\n"
	 "  leat rm -rf leat:/scratch/old\n",
	 ""},
	{"du --help", 0,
	 "usage: leat du [-s] [-d N] [-c] [-h|-b|-k|-m] [--apparent-size|--inodes] [-j N]\n"
	 "               [PATH ...]\n"
	 "Prints the space of the files below PATH, in KiB, for each directory after "
	 "those in\n"
	 "it. A file with several names counts once. PATH lies on a Leat mount, or is "
	 "leat:/PATH.\n"
	 "  -s, --summarize       only PATH itself\n"
	 "  -d N, --max-depth N   directories down to this depth\n"
	 "  -c, --total           also the sum of all PATHs\n"
	 "  -h, -b, -k, -m        for people; bytes of size; KiB; MiB\n"
	 "  --apparent-size       sizes, not the space that is occupied\n"
	 "  --inodes              the number of inodes\n"
	 "  -j N, --jobs N        requests in flight (64)\n"
	 "Examples:\n"
	 "  leat du -sh /mnt/leat/projects/*\n"
	 "  leat du -d 1 --inodes /mnt/leat\n",
	 ""},
	{"bench --help", 0,
	 "usage: leat bench [--size SIZE] [--files N] [--jobs N] [--seconds N] DIRECTORY\n"
	 "Writes, reads, random reads and small files, in a new folder below\n"
	 "DIRECTORY that is removed afterwards. Works on any file system.\n"
	 "  --size SIZE   of the large file (256M)\n"
	 "  --files N     small files (1000)\n"
	 "  --jobs N      threads of the random read (16)\n"
	 "  --seconds N   of the random read (3)\n"
	 "Examples:\n"
	 "  leat bench /mnt/leat\n"
	 "  leat bench --json --size 4G /mnt/leat > today.json\n"
	 "\n"
	 "usage: leat bench loader --workload NAME --data WHAT [--generate [--keep]]\n"
	 "         [--type a100|h100] [--accelerators N] [--scale X] [--steps N] "
	 "[--epochs N]\n"
	 "         [--order ORDER] [--seed N] [--threads N] [--depth N] [--memory SIZE]\n"
	 "         [--stage-dir DIR] [--cold] [--plot FILE.svg]\n"
	 "Training as MLPerf Storage emulates it: accelerators that take a batch, sleep "
	 "as long as\n"
	 "the real ones compute, and wait for each other.\n"
	 "  --workload NAME   unet3d, resnet50 or cosmoflow\n"
	 "  --data WHAT       a directory, leat:/DIRECTORY, or a data set NAME@VERSION; "
	 "on a Leat\n"
	 "                    mount it is read straight from the servers\n"
	 "  --generate        makes data below that directory first, and removes it "
	 "afterwards\n"
	 "                    (--keep: not)\n"
	 "  --scale X         of the samples' bytes (1): what a second needs shrinks as "
	 "much\n"
	 "  --steps N         of an epoch (all that there are; generated: 20)\n"
	 "  --cold            local files out of the page cache before each epoch\n"
	 "Examples:\n"
	 "  leat bench loader --workload unet3d --scale 0.01 --data /mnt/leat --generate\n"
	 "  leat bench loader --workload cosmoflow --accelerators 4 --data cosmo@v1 "
	 "--plot w.svg\n",
	 ""},
	{"config --help", 0,
	 "usage: leat config sample         every parameter with range, default, meaning\n"
	 "       leat config check [--no-key] [FILE]...\n"
	 "           checks whether all programs start with it and with its key\n"
	 "           --no-key: without the key\n"
	 "       leat config show           the values in force\n"
	 "Example: leat config sample > /etc/leat/leat.conf && leat config check\n",
	 ""},
	{"agent --help", 0,
	 "usage: leat agent [--set NAME=VALUE]... [--ready-file PATH]\n"
	 "       leat agent --check-config [FILE]...\n"
	 "Makes copies of data sets on request (leat stage in --agent, --nodes), serves "
	 "chunks\n"
	 "to the agents of other nodes, so that each is read from the servers about once, "
	 "and\n"
	 "keeps the copies within their capacity. Runs until SIGTERM.\n"
	 "  --set NAME=VALUE   a parameter of section [agent]\n"
	 "  --ready-file PATH  receives the address of the agent once it serves\n"
	 "  --check-config     only checks whether it would start with this\n"
	 "                     configuration and its key\n"
	 "Example: leat agent --set dirs=/local/nvme --set metrics=127.0.0.1:9460\n",
	 ""},
};

static void help_of_commands_for_this_machine(void **state)
{
	(void)state;
	run_table(local_rows, ARRAY_SIZE(local_rows));
}

static const struct run_row stage_rows[] = {
	{"stage --help", 0,
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
	 "  --wait UNTIL     ready, first-window or none: return at that point, continue in\n"
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
	 "  --placement HOW  with --nodes: replicate, spread[:N] (each file on N of "
	 "them), partition,\n"
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
	 "                   tree or to nothing, and devices, sockets, pipes, are left out\n"
	 "                   without exit status 5\n"
	 "  --replace        out: replace an existing directory, as a whole and in one step\n"
	 "  --catalog PATH   the catalogue of data sets (leat:/.leat/datasets)\n"
	 "Examples:\n"
	 "  leat stage in imagenet@v1 --to /local/nvme\n"
	 "  cd \"$(leat stage path imagenet@v1 --to /local/nvme)\"\n"
	 "  leat stage out /local/run7 /mnt/leat/results/run7\n",
	 ""},
	{"dataset --help", 0,
	 "usage: leat dataset create [--format FORMAT] [--skip WHAT] [--catalog PATH]\n"
	 "                           NAME@VERSION SOURCE\n"
	 "       leat dataset ls [--catalog PATH]\n"
	 "       leat dataset show NAME[@VERSION] [--catalog PATH]\n"
	 "       leat dataset seal NAME@VERSION [--catalog PATH]\n"
	 "       leat dataset rm NAME@VERSION [--catalog PATH]\n"
	 "A data set is a manifest of a directory: files, sizes, checksums, samples. It "
	 "never\n"
	 "changes. SOURCE: a directory on a mount, or leat:/DIRECTORY of the namespace.\n"
	 "seal makes its files immutable for ever, for all users (root may remove them).\n"
	 "rm removes the name, not the files.\n"
	 "  --catalog PATH   where data sets are kept (leat:/.leat/datasets)\n"
	 "  --format FORMAT  create: tar, tfrecord, mds, ffrecord, npz, npy (a sample per\n"
	 "                   row), fixed:BYTES[+HEADER] or files; without it the format\n"
	 "                   of most bytes of the files\n"
	 "  --skip WHAT      create: links, special or links,special: links that lead out\n"
	 "                   of the tree or to nothing, and devices, sockets, pipes, are\n"
	 "                   left out without exit status 5\n"
	 "create and show print format, samples, fields, and which files were left out\n"
	 "and why.\n"
	 "Example: leat dataset create imagenet@v1 /mnt/leat/imagenet\n",
	 ""},
};

static void help_of_staging(void **state)
{
	(void)state;
	run_table(stage_rows, ARRAY_SIZE(stage_rows));
}

static const struct run_row verb_rows[] = {
	{"help stage gc", 0,
	 "usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
	 "  gc               free space (--free SIZE, --capacity SIZE, --dry-run)\n"
	 "SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
	 "namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
	 "The copy is plain files; ready means that every block was verified and synced.\n"
	 "After an interruption, even by kill -9, the same command continues.\n"
	 "  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
	 "DIR:DIR2)\n"
	 "  --capacity SIZE  refuse when all copies there would exceed SIZE together\n"
	 "`leat stage --help` shows all its verbs.\n",
	 ""},
	{"stage in --help", 0,
	 "usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
	 "  in SOURCE        make a copy; returns when it is ready\n"
	 "SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
	 "namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
	 "The copy is plain files; ready means that every block was verified and synced.\n"
	 "After an interruption, even by kill -9, the same command continues.\n"
	 "  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
	 "DIR:DIR2)\n"
	 "  --capacity SIZE  refuse when all copies there would exceed SIZE together\n"
	 "  --evict          free space by evicting unused copies\n"
	 "  --timeout S      time limit; copied data is kept\n"
	 "  --wait UNTIL     ready, first-window or none: return at that point, continue in\n"
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
	 "  --placement HOW  with --nodes: replicate, spread[:N] (each file on N of "
	 "them), partition,\n"
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
	 "                   tree or to nothing, and devices, sockets, pipes, are left out\n"
	 "                   without exit status 5\n"
	 "  --catalog PATH   the catalogue of data sets (leat:/.leat/datasets)\n"
	 "Examples:\n"
	 "  leat stage in imagenet@v1 --to /local/nvme\n"
	 "`leat stage --help` shows all its verbs.\n",
	 ""},
	{"stage wait --help", 0,
	 "usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
	 "  wait WHAT        wait until it is ready\n"
	 "SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
	 "namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
	 "The copy is plain files; ready means that every block was verified and synced.\n"
	 "After an interruption, even by kill -9, the same command continues.\n"
	 "  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
	 "DIR:DIR2)\n"
	 "  --timeout S      time limit; copied data is kept\n"
	 "  --wait UNTIL     ready, first-window or none: return at that point, continue in\n"
	 "                   the background\n"
	 "`leat stage --help` shows all its verbs.\n",
	 ""},
	{"stage release --help", 0,
	 "usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
	 "  release [WHAT]   release the leases of a job (--lease JOB)\n"
	 "SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
	 "namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
	 "The copy is plain files; ready means that every block was verified and synced.\n"
	 "After an interruption, even by kill -9, the same command continues.\n"
	 "  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
	 "DIR:DIR2)\n"
	 "  --nodes LIST     the agents of these nodes make copies: HOST[:PORT],...,\n"
	 "                   n[1-4,7], @HOSTFILE or @ (the nodes of this job); each chunk "
	 "is\n"
	 "                   read from the servers once. --agent: one node. With release:\n"
	 "                   these agents release their copies\n"
	 "  --lease JOB      lease to a job until release, or for --ttl SECONDS\n"
	 "`leat stage --help` shows all its verbs.\n",
	 ""},
	{"help target drain", 0,
	 "usage: leat target drain|undrain|remove|add|recover ID\n"
	 "A target joins when its leat-ossd starts for the first time, and leaves in two "
	 "steps:\n"
	 "  drain      moves its copies to other targets, which takes a while and stops\n"
	 "             nothing; a drain continues when the command ends, undrain ends it\n"
	 "Examples:\n"
	 "  leat target drain 3 && leat target remove 3\n"
	 "`leat target --help` shows all its verbs.\n",
	 ""},
	{"target list --help", 0,
	 "usage: leat target list [--all]\n"
	 "A target joins when its leat-ossd starts for the first time, and leaves in two "
	 "steps:\n"
	 "Examples:\n"
	 "  leat target list --json\n"
	 "`leat target --help` shows all its verbs.\n",
	 ""},
	{"layout set --help", 0,
	 "usage: leat layout set [--width N] [--chunk-size SIZE] [--replicas N]\n"
	 "                       [--compression off|lz4] PATH ...\n"
	 "       leat layout set --replicas N --existing PATH ...\n"
	 "A file is divided into chunks, which are striped over N chains. The layout of a\n"
	 "directory applies to files that are created in it later. The layout of a file "
	 "can be\n"
	 "set while it has no data; --existing converts files that have.\n"
	 "  --width N           chains of a file\n"
	 "  --chunk-size SIZE   a power of two from 64K to 64M\n"
	 "  --replicas N        copies of the data, 1 to 3, on different hosts\n"
	 "  --compression lz4   compress blocks if that saves space; off: do not\n"
	 "  --existing          convert existing files too, in the background: each while\n"
	 "                      it is closed and has not changed for a minute. Ctrl-C ends\n"
	 "                      the display of the progress, stop ends the conversion\n"
	 "Examples:\n"
	 "  leat layout set --width 4 --chunk-size 4M /mnt/leat/checkpoints\n"
	 "  leat layout set --replicas 2 --existing /mnt/leat/results\n"
	 "`leat layout --help` shows all its verbs.\n",
	 ""},
	{"layout stop --help", 0,
	 "usage: leat layout stop PATH ...\n"
	 "A file is divided into chunks, which are striped over N chains. The layout of a\n"
	 "directory applies to files that are created in it later. The layout of a file "
	 "can be\n"
	 "set while it has no data; --existing converts files that have.\n"
	 "`leat layout --help` shows all its verbs.\n",
	 ""},
	{"quota show --help", 0,
	 "usage: leat quota show PATH ...\n"
	 "Limits the space and the inodes below a directory, for all users together; 0: no\n"
	 "limit. Existing files are counted. A quota below another one is separate from it.\n"
	 "ls lists all quotas of the file system and needs no mount; users other than "
	 "root see\n"
	 "quotas of directories that they could find by listing.\n"
	 "Examples:\n"
	 "  leat quota show /mnt/leat/projects/*\n"
	 "`leat quota --help` shows all its verbs.\n",
	 ""},
	{"quota set --help", 0,
	 "usage: leat quota set [--bytes SIZE] [--bytes-soft SIZE] [--inodes N]\n"
	 "                      [--inodes-soft N] [--adopt] DIRECTORY ...\n"
	 "Limits the space and the inodes below a directory, for all users together; 0: no\n"
	 "limit. Existing files are counted. A quota below another one is separate from it.\n"
	 "ls lists all quotas of the file system and needs no mount; users other than "
	 "root see\n"
	 "quotas of directories that they could find by listing.\n"
	 "  --bytes SIZE        space, as du counts it\n"
	 "  --inodes N          files, directories, links\n"
	 "  --bytes-soft SIZE, --inodes-soft N\n"
	 "                      may be exceeded for quota_grace_s (a week)\n"
	 "  --adopt             count the existing files again (after an interruption)\n"
	 "Examples:\n"
	 "  leat quota set --bytes 10T --inodes 5000000 /mnt/leat/projects/vision\n"
	 "`leat quota --help` shows all its verbs.\n",
	 ""},
	{"export add --help", 0,
	 "usage: leat export add [--ro] [--root-squash|--all-squash] [--anon-uid N]\n"
	 "                       [--anon-gid N] NETWORK\n"
	 "The most specific row with a client's address restricts the client; a client in "
	 "no\n"
	 "row is not restricted. NETWORK: 10.1.0.0/16, 10.1.2.3, fd00:1::/32. A change "
	 "takes\n"
	 "effect immediately, also for existing mounts; object servers that have not "
	 "confirmed\n"
	 "the change are named, and the exit status is 5.\n"
	 "  --ro              clients cannot change anything\n"
	 "  --root-squash     root and its group become the anonymous user\n"
	 "  --all-squash      all users do\n"
	 "  --anon-uid N, --anon-gid N\n"
	 "                    the anonymous user and group (65534)\n"
	 "Examples:\n"
	 "  leat export add --ro --root-squash 10.20.0.0/16\n"
	 "  leat export add 10.20.0.7\n"
	 "`leat export --help` shows all its verbs.\n",
	 ""},
	{"dataset create --help", 0,
	 "usage: leat dataset create [--format FORMAT] [--skip WHAT] [--catalog PATH]\n"
	 "                           NAME@VERSION SOURCE\n"
	 "A data set is a manifest of a directory: files, sizes, checksums, samples. It "
	 "never\n"
	 "changes. SOURCE: a directory on a mount, or leat:/DIRECTORY of the namespace.\n"
	 "seal makes its files immutable for ever, for all users (root may remove them).\n"
	 "rm removes the name, not the files.\n"
	 "  --catalog PATH   where data sets are kept (leat:/.leat/datasets)\n"
	 "  --format FORMAT  create: tar, tfrecord, mds, ffrecord, npz, npy (a sample per\n"
	 "                   row), fixed:BYTES[+HEADER] or files; without it the format\n"
	 "                   of most bytes of the files\n"
	 "  --skip WHAT      create: links, special or links,special: links that lead out\n"
	 "                   of the tree or to nothing, and devices, sockets, pipes, are\n"
	 "                   left out without exit status 5\n"
	 "create and show print format, samples, fields, and which files were left out\n"
	 "and why.\n"
	 "Example: leat dataset create imagenet@v1 /mnt/leat/imagenet\n"
	 "`leat dataset --help` shows all its verbs.\n",
	 ""},
	{"dataset rm --help", 0,
	 "usage: leat dataset rm NAME@VERSION [--catalog PATH]\n"
	 "A data set is a manifest of a directory: files, sizes, checksums, samples. It "
	 "never\n"
	 "changes. SOURCE: a directory on a mount, or leat:/DIRECTORY of the namespace.\n"
	 "seal makes its files immutable for ever, for all users (root may remove them).\n"
	 "rm removes the name, not the files.\n"
	 "  --catalog PATH   where data sets are kept (leat:/.leat/datasets)\n"
	 "create and show print format, samples, fields, and which files were left out\n"
	 "and why.\n"
	 "`leat dataset --help` shows all its verbs.\n",
	 ""},
	{"config check --help", 0,
	 "usage: leat config check [--no-key] [FILE]...\n"
	 "           checks whether all programs start with it and with its key\n"
	 "           --no-key: without the key\n"
	 "Example: leat config sample > /etc/leat/leat.conf && leat config check\n"
	 "`leat config --help` shows all its verbs.\n",
	 ""},
	{"bench loader --help", 0,
	 "usage: leat bench [--size SIZE] [--files N] [--jobs N] [--seconds N] DIRECTORY\n"
	 "Writes, reads, random reads and small files, in a new folder below\n"
	 "DIRECTORY that is removed afterwards. Works on any file system.\n"
	 "\n"
	 "usage: leat bench loader --workload NAME --data WHAT [--generate [--keep]]\n"
	 "         [--type a100|h100] [--accelerators N] [--scale X] [--steps N] "
	 "[--epochs N]\n"
	 "         [--order ORDER] [--seed N] [--threads N] [--depth N] [--memory SIZE]\n"
	 "         [--stage-dir DIR] [--cold] [--plot FILE.svg]\n"
	 "Training as MLPerf Storage emulates it: accelerators that take a batch, sleep "
	 "as long as\n"
	 "the real ones compute, and wait for each other.\n"
	 "  --workload NAME   unet3d, resnet50 or cosmoflow\n"
	 "  --data WHAT       a directory, leat:/DIRECTORY, or a data set NAME@VERSION; "
	 "on a Leat\n"
	 "                    mount it is read straight from the servers\n"
	 "  --generate        makes data below that directory first, and removes it "
	 "afterwards\n"
	 "                    (--keep: not)\n"
	 "  --scale X         of the samples' bytes (1): what a second needs shrinks as "
	 "much\n"
	 "  --steps N         of an epoch (all that there are; generated: 20)\n"
	 "  --cold            local files out of the page cache before each epoch\n"
	 "Examples:\n"
	 "  leat bench loader --workload unet3d --scale 0.01 --data /mnt/leat --generate\n"
	 "  leat bench loader --workload cosmoflow --accelerators 4 --data cosmo@v1 "
	 "--plot w.svg\n"
	 "`leat bench --help` shows all its verbs.\n",
	 ""},
	{"scrub start --help", 0,
	 "usage: leat scrub start|stop|status [--target N]\n"
	 "Object servers read all their data, compare it with its checksums and with the "
	 "other\n"
	 "copies, and repair damaged blocks from good copies. A scrub continues after a\n"
	 "restart. Without --target: all targets. UNCOMPARED: chunks that were not compared\n"
	 "with a copy whose server was down or did not answer; with a * the members of "
	 "chains\n"
	 "have changed meanwhile, and another scrub compares the chunks that this one did "
	 "not.\n"
	 "Exit status 7: some blocks could not be repaired.\n"
	 "Examples:\n"
	 "  leat scrub start\n"
	 "`leat scrub --help` shows all its verbs.\n",
	 ""},
	{"help help", 0,
	 "usage: leat [--conf FILE] [--json] COMMAND [ARGUMENTS]\n"
	 "\n"
	 "commands:\n"
	 "  mount     mount the namespace\n"
	 "  umount    unmount, and wait until all data is written\n"
	 "  status    the servers, their targets, and a mount\n"
	 "  df        space used and free, by target or by mount\n"
	 "  layout    how files are striped over the targets\n"
	 "  quota     limits for space and files of a directory\n"
	 "  dataset   name data sets, list them\n"
	 "  stage     verified copies of data sets on local disks\n"
	 "  scrub     verify all stored data, repair it from other copies\n"
	 "  bench     a small benchmark of a directory, or of training from it\n"
	 "  config    print or check a configuration\n"
	 "  target    targets: list, drain, remove, recover, rebalance\n"
	 "  fsck      check the whole file system while it is in use\n"
	 "  agent     the daemon of a node that stages data\n"
	 "  cp        copy files and trees concurrently\n"
	 "  rm        remove files and trees concurrently\n"
	 "  du        the space that trees occupy\n"
	 "  export    what clients of a network may do\n"
	 "  help      what a command, or a verb of it, does: leat help stage in\n"
	 "  version   print the version\n"
	 "\n"
	 "options of all commands:\n"
	 "  --conf FILE   configuration (default $LEAT_CONF, else /etc/leat/leat.conf)\n"
	 "  --json        results as JSON on stdout\n"
	 "  --help        what a command does, with examples\n"
	 "  --version     print the version\n"
	 "\n"
	 "`leat COMMAND --help` says more. Example: leat status\n",
	 ""},
};

static void help_of_one_verb(void **state)
{
	(void)state;
	run_table(verb_rows, ARRAY_SIZE(verb_rows));
}

static const struct run_row leat_rows[] = {
	{"--help", 0,
	 "usage: leat [--conf FILE] [--json] COMMAND [ARGUMENTS]\n"
	 "\n"
	 "commands:\n"
	 "  mount     mount the namespace\n"
	 "  umount    unmount, and wait until all data is written\n"
	 "  status    the servers, their targets, and a mount\n"
	 "  df        space used and free, by target or by mount\n"
	 "  layout    how files are striped over the targets\n"
	 "  quota     limits for space and files of a directory\n"
	 "  dataset   name data sets, list them\n"
	 "  stage     verified copies of data sets on local disks\n"
	 "  scrub     verify all stored data, repair it from other copies\n"
	 "  bench     a small benchmark of a directory, or of training from it\n"
	 "  config    print or check a configuration\n"
	 "  target    targets: list, drain, remove, recover, rebalance\n"
	 "  fsck      check the whole file system while it is in use\n"
	 "  agent     the daemon of a node that stages data\n"
	 "  cp        copy files and trees concurrently\n"
	 "  rm        remove files and trees concurrently\n"
	 "  du        the space that trees occupy\n"
	 "  export    what clients of a network may do\n"
	 "  help      what a command, or a verb of it, does: leat help stage in\n"
	 "  version   print the version\n"
	 "\n"
	 "options of all commands:\n"
	 "  --conf FILE   configuration (default $LEAT_CONF, else /etc/leat/leat.conf)\n"
	 "  --json        results as JSON on stdout\n"
	 "  --help        what a command does, with examples\n"
	 "  --version     print the version\n"
	 "\n"
	 "`leat COMMAND --help` says more. Example: leat status\n",
	 ""},
	{"help", 0,
	 "usage: leat [--conf FILE] [--json] COMMAND [ARGUMENTS]\n"
	 "\n"
	 "commands:\n"
	 "  mount     mount the namespace\n"
	 "  umount    unmount, and wait until all data is written\n"
	 "  status    the servers, their targets, and a mount\n"
	 "  df        space used and free, by target or by mount\n"
	 "  layout    how files are striped over the targets\n"
	 "  quota     limits for space and files of a directory\n"
	 "  dataset   name data sets, list them\n"
	 "  stage     verified copies of data sets on local disks\n"
	 "  scrub     verify all stored data, repair it from other copies\n"
	 "  bench     a small benchmark of a directory, or of training from it\n"
	 "  config    print or check a configuration\n"
	 "  target    targets: list, drain, remove, recover, rebalance\n"
	 "  fsck      check the whole file system while it is in use\n"
	 "  agent     the daemon of a node that stages data\n"
	 "  cp        copy files and trees concurrently\n"
	 "  rm        remove files and trees concurrently\n"
	 "  du        the space that trees occupy\n"
	 "  export    what clients of a network may do\n"
	 "  help      what a command, or a verb of it, does: leat help stage in\n"
	 "  version   print the version\n"
	 "\n"
	 "options of all commands:\n"
	 "  --conf FILE   configuration (default $LEAT_CONF, else /etc/leat/leat.conf)\n"
	 "  --json        results as JSON on stdout\n"
	 "  --help        what a command does, with examples\n"
	 "  --version     print the version\n"
	 "\n"
	 "`leat COMMAND --help` says more. Example: leat status\n",
	 ""},
	{"help version", 0,
	 "usage: leat [--conf FILE] [--json] COMMAND [ARGUMENTS]\n"
	 "\n"
	 "commands:\n"
	 "  mount     mount the namespace\n"
	 "  umount    unmount, and wait until all data is written\n"
	 "  status    the servers, their targets, and a mount\n"
	 "  df        space used and free, by target or by mount\n"
	 "  layout    how files are striped over the targets\n"
	 "  quota     limits for space and files of a directory\n"
	 "  dataset   name data sets, list them\n"
	 "  stage     verified copies of data sets on local disks\n"
	 "  scrub     verify all stored data, repair it from other copies\n"
	 "  bench     a small benchmark of a directory, or of training from it\n"
	 "  config    print or check a configuration\n"
	 "  target    targets: list, drain, remove, recover, rebalance\n"
	 "  fsck      check the whole file system while it is in use\n"
	 "  agent     the daemon of a node that stages data\n"
	 "  cp        copy files and trees concurrently\n"
	 "  rm        remove files and trees concurrently\n"
	 "  du        the space that trees occupy\n"
	 "  export    what clients of a network may do\n"
	 "  help      what a command, or a verb of it, does: leat help stage in\n"
	 "  version   print the version\n"
	 "\n"
	 "options of all commands:\n"
	 "  --conf FILE   configuration (default $LEAT_CONF, else /etc/leat/leat.conf)\n"
	 "  --json        results as JSON on stdout\n"
	 "  --help        what a command does, with examples\n"
	 "  --version     print the version\n"
	 "\n"
	 "`leat COMMAND --help` says more. Example: leat status\n",
	 ""},
	{"du -h --help", 0,
	 "usage: leat du [-s] [-d N] [-c] [-h|-b|-k|-m] [--apparent-size|--inodes] [-j N]\n"
	 "               [PATH ...]\n"
	 "Prints the space of the files below PATH, in KiB, for each directory after "
	 "those in\n"
	 "it. A file with several names counts once. PATH lies on a Leat mount, or is "
	 "leat:/PATH.\n"
	 "  -s, --summarize       only PATH itself\n"
	 "  -d N, --max-depth N   directories down to this depth\n"
	 "  -c, --total           also the sum of all PATHs\n"
	 "  -h, -b, -k, -m        for people; bytes of size; KiB; MiB\n"
	 "  --apparent-size       sizes, not the space that is occupied\n"
	 "  --inodes              the number of inodes\n"
	 "  -j N, --jobs N        requests in flight (64)\n"
	 "Examples:\n"
	 "  leat du -sh /mnt/leat/projects/*\n"
	 "  leat du -d 1 --inodes /mnt/leat\n",
	 ""},
};

static void help_of_the_program(void **state)
{
	(void)state;
	run_table(leat_rows, ARRAY_SIZE(leat_rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(help_of_commands_for_servers),
		cmocka_unit_test(help_of_commands_for_this_machine),
		cmocka_unit_test(help_of_staging),
		cmocka_unit_test(help_of_one_verb),
		cmocka_unit_test(help_of_the_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
