/*
 * mount.leat, also called as mount.fuse.leat by mount(8): mounts the namespace of a Leat cluster.
 *
 *   parse options → leat.conf → go to the background (the parent waits until it is mounted) →
 *   supervisor, which starts the daemon (the same program again) → loop:
 *   connect to the metadata server → mount → serve until unmounted or told to end → unmount
 */
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rpc/transport_mux.h"
#include "common/rt/cpus.h"
#include "common/rt/net.h"
#include "fuse/kernel_mount.h"
#include "fuse/kept.h"
#include "fuse/options.h"
#include "fuse/passthrough.h"
#include "fuse/supervisor.h"

#define FIGURES_US 1000000u

static struct mount_options opts;

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	struct leatfs *fs = userdata;

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	static const uint64_t want[] = {
		FUSE_CAP_PARALLEL_DIROPS,
		FUSE_CAP_ASYNC_READ,
		FUSE_CAP_ASYNC_DIO,
		FUSE_CAP_EXPLICIT_INVAL_DATA,
		FUSE_CAP_READDIRPLUS,
		FUSE_CAP_DONT_MASK,
		FUSE_CAP_ATOMIC_O_TRUNC,
		FUSE_CAP_DIRECT_IO_ALLOW_MMAP,
		FUSE_CAP_HANDLE_KILLPRIV_V2,
		FUSE_CAP_POSIX_ACL,
		FUSE_CAP_SETXATTR_EXT,
		FUSE_CAP_EXPORT_SUPPORT,
	};
	static const uint64_t locks[] = {FUSE_CAP_FLOCK_LOCKS, FUSE_CAP_POSIX_LOCKS};
	static const uint64_t do_not_want[] = {
		FUSE_CAP_SPLICE_READ,     FUSE_CAP_SPLICE_WRITE,    FUSE_CAP_SPLICE_MOVE,
		FUSE_CAP_WRITEBACK_CACHE, FUSE_CAP_AUTO_INVAL_DATA, FUSE_CAP_HANDLE_KILLPRIV,
		FUSE_CAP_READDIRPLUS_AUTO,
	};
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		fuse_set_feature_flag(conn, want[i]);
	fs->setxattr_ext = fuse_get_feature_flag(conn, FUSE_CAP_SETXATTR_EXT);
	for (size_t i = 0; i < ARRAY_SIZE(do_not_want); i++)
		fuse_unset_feature_flag(conn, do_not_want[i]);
	for (size_t i = 0; i < ARRAY_SIZE(locks); i++) {
		if (fs->local_locks)
			fuse_unset_feature_flag(conn, locks[i]);
		else
			fuse_set_feature_flag(conn, locks[i]);
	}
#else
	conn->want |= conn->capable &
		      (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
		       FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_READDIRPLUS |
		       FUSE_CAP_DONT_MASK | FUSE_CAP_ATOMIC_O_TRUNC |
		       FUSE_CAP_POSIX_ACL | FUSE_CAP_EXPORT_SUPPORT);
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				  FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
				  FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_HANDLE_KILLPRIV |
				  FUSE_CAP_READDIRPLUS_AUTO);
	if (fs->local_locks)
		conn->want &= ~(unsigned)(FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
	else
		conn->want |= conn->capable & (FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
#endif
	passthrough_negotiate(fs->passthrough, conn);
	conn->max_write = fs->max_write;
	conn->max_readahead = fs->max_write;
	conn->max_background = fs->max_background;
	conn->congestion_threshold = fs->max_background * 3 / 4;
	conn->time_gran = 1;
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = fs_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.access = op_access,
	.create = op_create,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	.tmpfile = op_tmpfile,
#endif
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.getlk = op_getlk,
	.setlk = op_setlk,
	.flock = op_flock,
	.ioctl = op_ioctl,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	.statx = op_statx,
#endif
};

/* ---- life of the daemon ---- */

struct daemon {
	struct leatfs fs;
	struct transport *transport;
	struct rpc_key key;
	int ready_fd; /* the parent waits here: an exit status and a message */
	int exit_status;
	int device_fd;   /* -1: to be opened */
	bool takes_over; /* from a former daemon */
};

static void tell_parent(struct daemon *d, int exit_status)
{
	if (d->ready_fd < 0)
		return;
	char byte = (char)exit_status;
	if (write(d->ready_fd, &byte, 1) != 1)
		log_warn("the mounting process went away");
	close(d->ready_fd);
	d->ready_fd = -1;
	if (exit_status == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
			if (!opts.log_file[0])
				dup2(null, 2);
			close(null);
		}
	}
}

static void watched_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, DAEMON_SIGNAL_HAND_OVER);
}

/* SIGTERM and SIGINT unmount: what is open keeps working until then, new users are refused. The
 * supervisor asks us to make room for another daemon. */
static void watch_signals(void *arg)
{
	struct daemon *d = arg;
	struct signalfd_siginfo info;
	sigset_t set;
	int fd;

	watched_signals(&set);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return;
	while (net_poll(fd, POLLIN, NO_DEADLINE) > 0) {
		if (read(fd, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo == (uint32_t)DAEMON_SIGNAL_HAND_OVER) {
			if (d->fs.kept->supervisor != 0)
				session_hand_over(&d->fs);
			continue;
		}
		log_info("%s: unmounting %s", strsignal((int)info.ssi_signo), d->fs.mountpoint);
		if (umount2(d->fs.mountpoint, MNT_DETACH) < 0)
			log_warn("umount %s: %s", d->fs.mountpoint, strerror(errno));
		break;
	}
	close(fd);
}

static void on_invalidate(void *arg, struct ino ino, bool data)
{
	struct leatfs *fs = arg;

	if (!fs->mounted)
		return;
	if (data)
		passthrough_changed(fs, ino.v);
	/* Attributes only: takes no lock of the kernel's that a request could hold. */
	if (data)
		invalidate_inode_now(fs, ino, 0, 0);
	else
		known_size_forget_attr(fs, ino);
}

/* By a descriptor the kernel judges without asking. */
static int on_owner_changed(void *arg, struct ino ino)
{
	struct leatfs *fs = arg;
	int rc;

	if (fs->handing_over)
		return -LE_NOT_READY; /* this daemon reads no more requests */
	if (!fs->mounted || (fs->probes_refused && fs->owner_unknown))
		return 0;
	rc = known_owner_ask(fs, ino);
	if (rc < 0 && fs->handing_over)
		return -LE_NOT_READY; /* what the kernel was to ask for has not been read */
	if (rc >= 0 || fs->owner_unknown)
		return 0;
	fs->owner_unknown = true;
	if (fs->probes_refused)
		log_warn("%s: until it asks again the kernel judges by the former owner what other "
			 "mounts have given away while it is open here: this needs "
			 "open_by_handle_at, and so CAP_DAC_READ_SEARCH",
			 fs->mountpoint);
	else
		log_info("inode %llu: the kernel judges by its former owner until it asks again: "
			 "%s; of others this is not logged",
			 (unsigned long long)ino.v, status_text(rc));
	return 0;
}

/* What is watched of the connections changes by itself, so somebody has to look. */
static void net_figures(void *arg)
{
	struct leatfs *fs = arg;

	while (fs->mounted) {
		struct rpc_net_totals net = {0};

		ll_net_totals(fs->client, &net);
		NET_METRICS_SET(&fs->metrics, &net);
		if (fiber_sleep_us(FIGURES_US) < 0)
			break;
	}
}

/* The directory that is to be mounted, name by name: links on the way are not followed. */
static int find_subtree(struct leatfs *fs)
{
	const struct cred cred = {.uid = 0};
	struct attr attr = {.ino = LEAT_ROOT_INO, .mode = S_IFDIR};
	const char *at = opts.subtree;

	for (;;) {
		at += strspn(at, "/");
		size_t len = strcspn(at, "/");
		int status = 0;

		if (len == 0)
			break;
		if (at[0] == '.' && (len == 1 || (len == 2 && at[1] == '.')))
			status = -LE_INVAL;
		if (status == 0)
			status = ll_lookup(fs->client, &cred, attr.ino, bytes_of(at, (uint32_t)len),
					   &attr);
		if (status == 0 && !S_ISDIR(attr.mode))
			status = -LE_NOTDIR;
		if (status < 0) {
			log_error("cannot mount %s: %.*s: %s", opts.source,
				  (int)(at + len - opts.subtree), opts.subtree,
				  status_text(status));
			return status;
		}
		at += len;
	}
	mount_root = fs->kept->root = attr.ino;
	return 0;
}

/* The kernel leaves access times to the file system, whatever it was told. */
static enum ll_atime atime_rule(unsigned long flags)
{
	if ((flags & (MS_NOATIME | MS_RDONLY)) != 0)
		return LL_ATIME_NONE;
	return (flags & MS_STRICTATIME) != 0 ? LL_ATIME_STRICT : LL_ATIME_RELATIVE;
}

static int start_client(struct daemon *d)
{
	struct leatfs *fs = &d->fs;
	struct client_options co = {
		.transport = d->transport,
		.key = d->key,
		.mds_addrs = opts.cluster.mds,
		.params = opts.client,
		.invalidate = on_invalidate,
		.owner_changed = on_owner_changed,
		.arg = fs,
		.atime = atime_rule(opts.ms_flags),
		.kept = &fs->kept->client,
		.resume = d->takes_over ? open_files_resume : NULL,
	};
	int status = client_create(&co, &fs->client);

	fs->strict_atime = co.atime == LL_ATIME_STRICT;
	if (status < 0)
		log_error("cannot reach the metadata server at %s: %s", opts.cluster.mds,
			  status_text(status));
	return status;
}

static int start(struct daemon *d)
{
	struct leatfs *fs = &d->fs;
	int status;

	fs->max_write = 1 << 20;
	TRY(passthrough_create(fs, opts.mount.stage_dir, opts.mount.passthrough, &fs->passthrough));
	/* Before anybody may ask us to drop what the kernel caches. */
	if (d->takes_over) {
		mount_root = fs->kept->root;
		TRY(session_take_over(fs, d->device_fd));
	}
	TRY(invalidator_start(fs));
	TRY(start_client(d));
	TRY(cpus_use(opts.client.cores, transport_numa_node(d->transport)));
	if (!d->takes_over)
		TRY(find_subtree(fs));
	status = slot_pool_create(fs->max_write + (64 << 10), opts.mount.requests_max,
				  &fs->requests);
	if (status == 0)
		status = d->transport->ops->add_pool(d->transport, fs->requests, POOL_REMOTE);
	if (status == 0)
		status = passthrough_start(fs->passthrough);
	if (status < 0)
		log_error("cannot mount at %s: %s", fs->mountpoint, status_text(status));
	if (status < 0)
		return status;
	if (!d->takes_over)
		return session_mount(fs, &opts, d->device_fd);
	TRY(open_files_resumed(fs));
	return session_ask_again(fs);
}

static void run(void *arg)
{
	struct daemon *d = arg;
	struct leatfs *fs = &d->fs;
	int status = start(d);

	if (status == 0) {
		log_info("%s mounted at %s", opts.source, fs->mountpoint);
		tell_parent(d, 0);
		kept_ready(fs->kept, &d->key);
		status = fiber_spawn("signals", watch_signals, d);
		if (status == 0)
			status = fiber_spawn("figures", net_figures, fs);
		if (status == 0 && d->takes_over)
			status = fiber_spawn("drop-pages", open_files_drop_pages, fs);
		if (session_serve(fs)) {
			log_info("%s: another daemon goes on", fs->mountpoint);
			fs->kept->end = KEPT_HANDED_OVER;
			_exit(0);
		}
		session_detach(fs);
		log_info("%s unmounted", fs->mountpoint);
	} else {
		d->exit_status = 32; /* mount(8): mount failure */
		if (d->takes_over)   /* all of it is the next one's */
			_exit(fs->init_differs ? DAEMON_REFUSED : d->exit_status);
	}
	invalidator_stop(fs);
	known_size_fini(fs);
	passthrough_destroy(fs->passthrough);
	if (fs->client)
		client_destroy(fs->client);
	session_end(fs);
	loop_stop(fs->loop);
	tell_parent(d, d->exit_status);
	/* Everything is flushed and closed; the signal fiber may still wait. */
	log_debug("end");
	fs->kept->end = KEPT_UNMOUNTED;
	_exit(d->exit_status);
}

/* ---- /metrics ---- */

static int render_metrics(void *arg, char **ret_text, size_t *ret_len)
{
	struct leatfs *fs = arg;

	return metrics_print(mount_metric_table, n_mount_metrics, &fs->metrics, "", ret_text,
			     ret_len);
}

/* Whoever goes on where another one was killed has the same: the file may have been changed for a
 * restart of everything that is still to come. */
static int load_key(struct daemon *d)
{
	const struct kept *k = d->fs.kept;

	if (!k->has_key || k->anew)
		return rpc_key_load(opts.cluster.key_file, &d->key);
	d->key = k->key;
	return 0;
}

static int serve(const struct supervised *sup)
{
	static struct daemon d;
	struct env_real_options eo = {.n_workers = 2};
	struct loop_options lo = {.name = "mount", .spin_us = opts.client.spin_us};
	struct metrics_server *metrics = NULL;
	sigset_t set;

	d.ready_fd = sup->ready_fd;
	d.device_fd = sup->device_fd;
	d.fs.kept = sup->kept;
	d.takes_over = sup->kept->mounted;
	hmap_init(&d.fs.dirs, 64);
	hmap_init(&d.fs.known_sizes, 64);
	list_init(&d.fs.former_sizes);
	turnq_init(&d.fs.probe_turns);
	snprintf(d.fs.mountpoint, sizeof(d.fs.mountpoint), "%s", opts.mountpoint);
	killed_init(&d.fs.killed);
	list_init(&d.fs.running);
	d.fs.slow_ms = opts.mount.slow_ms;
	d.fs.max_background = opts.mount.max_background;
	d.fs.local_locks = opts.mount.local_locks;
	watched_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* `systemctl reload` of a mount without a supervisor: nothing, rather than its end. */
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* of nobody's interest: known_size.c */

	int status = open_files_init(&d.fs);
	if (status == 0)
		status = load_key(&d);
	if (status < 0)
		log_error("cluster key %s: %s", opts.cluster.key_file, status_text(status));
	if (status == 0)
		status = env_real_create(&eo, &d.fs.env);
	if (status == 0)
		status = transport_mux_create(opts.cluster.transport, &d.transport);
	if (status == 0)
		status = loop_create(d.fs.env, &lo, &d.fs.loop);
	if (status == 0 && opts.mount.metrics_addr[0])
		status = metrics_server_start(opts.mount.metrics_addr, render_metrics, &d.fs,
					      &metrics);
	if (status == 0)
		status = fiber_spawn_on(d.fs.loop, "main", run, &d);
	if (status < 0) {
		log_error("cannot start: %s", status_text(status));
		tell_parent(&d, 1);
		return 1;
	}
	loop_run(d.fs.loop);
	return d.exit_status;
}

/* Without a supervisor, until the mount has ended. */
static int serve_alone(int ready_fd)
{
	struct supervised alone = {.device_fd = -1, .ready_fd = ready_fd};

	alone.kept = kept_create(NULL);
	if (alone.kept == NULL) {
		log_error("cannot start: %s", strerror(errno));
		return 1;
	}
	return serve(&alone);
}

static int serve_daemon(const struct supervised *sup)
{
	if (sup->kept != NULL)
		return serve(sup);
	log_error("this release cannot go on with a mount of another one: it has to be unmounted "
		  "and mounted");
	return DAEMON_REFUSED;
}

static int serve_mount(char **argv, int ready_fd)
{
	return opts.mount.supervise ? supervise(&opts, argv, ready_fd) : serve_alone(ready_fd);
}

/* mount(8) is silent when all is well, and what comes later nobody could read. */
static void be_quiet(void)
{
	if (!opts.foreground && !opts.log_file[0] && !log_enabled(LOG_DEBUG) &&
	    log_enabled(LOG_INFO))
		log_set_level(LOG_WARN);
}

/* Forks before any thread exists; the parent's exit status is the mount's. */
static int serve_in_background(char **argv)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return 1;
	pid = fork();
	if (pid < 0)
		return 1;
	if (pid == 0) {
		close(fds[0]);
		setsid();
		if (chdir("/") < 0)
			log_warn("chdir /: %s", strerror(errno));
		return serve_mount(argv, fds[1]);
	}
	close(fds[1]);
	char byte = 1;
	if (read(fds[0], &byte, 1) != 1)
		byte = 32;
	return (unsigned char)byte;
}

static int remount(void)
{
	int err = kernel_remount(&opts);

	if (err == 0)
		return 0;
	fprintf(stderr, "mount.leat: cannot remount %s: %s\n", opts.mountpoint,
		err == EINVAL ? "no Leat file system is mounted there, or the kernel refuses the "
				"options"
			      : strerror(err));
	return 32;
}

/* Parsing changes the words. */
static char **copy_words(int argc, char **argv)
{
	char **v = calloc((size_t)argc + 1, sizeof(*v));

	for (int i = 0; v != NULL && i < argc; i++) {
		v[i] = strdup(argv[i]);
		if (v[i] == NULL)
			return NULL;
	}
	return v;
}

static int open_log(void)
{
	int fd = open(opts.log_file, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd < 0 || dup2(fd, 2) < 0) {
		fprintf(stderr, "mount.leat: %s: %s\n", opts.log_file, strerror(errno));
		return -1;
	}
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	static struct supervised sup;
	bool daemon;
	char **words;
	int status;

	if (argc == 3 && strcmp(argv[1], PROBE_SIZE) == 0)
		return size_probe(argv);
	daemon = supervised_daemon(&sup);
	words = copy_words(argc, argv);
	if (words == NULL)
		return 1;
	log_init("mount.leat", LOG_INFO);
	status = mount_options_parse(argc, argv, daemon ? sup.mountpoint : NULL, &opts);
	if (status != 0)
		return status < 0 ? 1 : 0;
	be_quiet();
	if (daemon)
		return serve_daemon(&sup);
	if (opts.remount)
		return remount();
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		fprintf(stderr,
			"mount.leat: /dev/fuse: %s. Load the fuse module (modprobe fuse) and run "
			"as root.\n",
			strerror(errno));
		return 32;
	}
	close_range(3, ~0U, 0);
	if (opts.log_file[0] && open_log() < 0)
		return 1;
	return opts.foreground ? serve_mount(words, -1) : serve_in_background(words);
}
