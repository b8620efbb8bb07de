/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount.leat, also called as mount.fuse.leat by mount(8): mounts the namespace of a Leat cluster.
 *
 *   parse options → leat.conf → leave the terminal (the parent waits until it is mounted) →
 *   supervisor, which starts the daemon (the same program again) → loop:
 *   connect to the metadata server → mount → serve until unmounted or signalled → unmount
 */
#include "common/base/metrics_http.h"
#include "common/rpc/auth.h"
#include "common/rt/env_real.h"
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rt/alive.h"
#include "common/rt/cpus.h"
#include "common/rt/net.h"
#include "fuse/kernel/kernel_mount.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/ops/handlers.h"
#include "fuse/options.h"
#include "fuse/restart/handle_table.h"
#include "fuse/restart/restart_state.h"
#include "fuse/restart/supervisor.h"

#define STATS_US 1000000u
#define TURN_US    1000000u

static struct mount_options opts;

#define DAEMON_MAGIC 0x4c44414du
struct daemon {
	uint32_t magic;
	struct leatfs fs;
	struct transport *transport;
	struct rpc_key key;
	int ready_fd; /* the parent reads the exit status from it, one byte */
	int exit_status;
	int device_fd;   /* -1: to be opened */
	bool takes_over; /* from a previous daemon */
	struct alive alive;
	struct timer turn;
};

/* True if the service manager watches this process. If there is a supervisor, it watches that. */
static bool is_service(const struct daemon *d)
{
	return d->fs.restart->supervisor == 0;
}

/* Shows the supervisor that the loop is not stuck, until the daemon has ended. */
static void turn(struct timer *t)
{
	struct daemon *d = container_of(t, struct daemon, turn);

	d->fs.restart->turned_ms = monotonic_ms();
	timer_set(t, loop_now_us() + TURN_US);
}

static void notify_manager(const struct daemon *d)
{
	int away = ll_unreachable(d->fs.client);

	if (away < 0)
		notify_status("mounted at %s; the metadata server at %s cannot be reached: %s",
			      d->fs.mountpoint, opts.cluster.mds, status_text(away));
	else
		notify_status("mounted at %s", d->fs.mountpoint);
}

static void notify_parent(struct daemon *d, int exit_status)
{
	if (d->ready_fd < 0)
		return;
	char byte = (char)exit_status;
	if (write(d->ready_fd, &byte, 1) != 1)
		log_warn("%s: the process that mounts has ended without reading how the mount "
			 "went",
			 d->fs.mountpoint);
	close(d->ready_fd);
	d->ready_fd = -1;
	if (exit_status == 0)
		mount_leave_terminal(&opts);
}

static void watched_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, DAEMON_SIGNAL_HAND_OVER);
}

/* SIGTERM and SIGINT unmount: open files remain usable until they are closed, and
 * programs can open no others. On DAEMON_SIGNAL_HAND_OVER from the supervisor another daemon takes
 * over. */
static void watch_signals(void *arg)
{
	struct daemon *d = CAST_OBJ(arg, struct daemon, DAEMON_MAGIC);
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
			if (d->fs.restart->supervisor != 0)
				session_hand_over(&d->fs);
			continue;
		}
		log_info("%s: unmounting %s", strsignal((int)info.ssi_signo), d->fs.mountpoint);
		if (is_service(d))
			notify_stopping();
		if (umount2(d->fs.mountpoint, MNT_DETACH) < 0)
			log_warn("umount %s: %s", d->fs.mountpoint, strerror(errno));
		break;
	}
	close(fd);
}

/* Copies statistics of the connections to the metrics, and renews the status text. */
static void net_stats(void *arg)
{
	struct daemon *d = CAST_OBJ(arg, struct daemon, DAEMON_MAGIC);
	struct leatfs *fs = &d->fs;

	while (mount_is_attached(fs)) {
		struct rpc_net_totals net = {0};

		notify_manager(d);

		ll_net_totals(fs->client, &net);
		NET_METRICS_SET(&fs->metrics, &net);
		if (fiber_sleep_us(STATS_US) < 0)
			break;
	}
}

/* Finds the directory that is to be mounted, component by component. Does not follow links. */
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
	fs->root = fs->restart->root = attr.ino;
	return 0;
}

/* The kernel leaves access times of FUSE to the file system, whatever flags the mount has. */
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
		.invalidate = kernel_pages_recalled,
		.owner_changed = kernel_owner_changed,
		.arg = fs,
		.reports_unreachable = true,
		.atime = atime_rule(opts.ms_flags),
		.restart = &fs->restart->client,
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
	TRY(kernel_pages_create(fs, opts.mount.stage_dir, opts.mount.passthrough));
	/* Before the client can be notified to drop what the kernel caches. */
	if (d->takes_over) {
		fs->root = fs->restart->root;
		TRY(session_take_over(fs, d->device_fd));
	}
	TRY(start_client(d));
	TRY(cpus_use(opts.client.cores, transport_numa_node(d->transport)));
	if (!d->takes_over)
		TRY(find_subtree(fs));
	status = slot_pool_create(fs->max_write + (64 << 10), opts.mount.requests_max,
				  &fs->requests);
	if (status == 0)
		status = d->transport->ops->add_pool(d->transport, fs->requests, POOL_REMOTE);
	if (status == 0)
		status = kernel_pages_start(fs);
	if (status < 0)
		log_error("cannot mount at %s: %s", fs->mountpoint, status_text(status));
	if (status < 0)
		return status;
	if (!d->takes_over)
		return session_mount(fs, &opts, d->device_fd);
	open_files_resumed(fs);
	return session_ask_again(fs);
}

static void run(void *arg)
{
	struct daemon *d = CAST_OBJ(arg, struct daemon, DAEMON_MAGIC);
	struct leatfs *fs = &d->fs;
	int status;

	timer_init(&d->turn, turn);
	timer_set(&d->turn, loop_now_us());
	if (is_service(d))
		alive_start(&d->alive, NULL, NULL);
	notify_status("waits for the metadata server at %s", opts.cluster.mds);
	status = start(d);
	if (status == 0) {
		notify_parent(d, 0);
		if (is_service(d))
			notify_ready();
		log_info("%s mounted at %s", opts.source, fs->mountpoint);
		restart_state_ready(fs->restart, &d->key);
		status = fiber_spawn("signals", watch_signals, d);
		if (status == 0)
			status = fiber_spawn("net-stats", net_stats, d);
		if (status == 0 && d->takes_over)
			status = fiber_spawn("drop-pages", open_files_drop_pages, fs);
		if (session_serve(fs)) {
			log_info("%s: another daemon goes on", fs->mountpoint);
			fs->restart->end = RESTART_HANDED_OVER;
			_exit(0);
		}
		session_detach(fs);
		log_info("%s unmounted", fs->mountpoint);
	} else {
		d->exit_status = 32; /* mount(8): mount failure */
		if (d->takes_over)   /* the next daemon takes the mount over */
			_exit(fs->init_differs ? DAEMON_REFUSED : d->exit_status);
	}
	kernel_pages_destroy(fs);
	if (fs->client)
		client_destroy(fs->client);
	session_end(fs);
	loop_stop(fs->loop);
	notify_parent(d, d->exit_status);
	/* Everything is flushed and closed; the signal fiber may still wait. */
	log_debug("end");
	fs->restart->end = RESTART_UNMOUNTED;
	_exit(d->exit_status);
}

/* ---- /metrics ---- */

static int render_metrics(void *arg, char **ret_text, size_t *ret_len)
{
	struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);

	return metrics_print(mount_metric_table, n_mount_metrics, &fs->metrics, "", ret_text,
			     ret_len);
}

/* Loads the cluster key. A daemon that takes over from a killed one uses the key of that one: the
 * file may already hold the key for a restart of the whole cluster that is still to come. */
static int load_key(struct daemon *d)
{
	const struct restart *k = d->fs.restart;

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
	sigset_t set;

	d.ready_fd = sup->ready_fd;
	d.device_fd = sup->device_fd;
	d.magic = DAEMON_MAGIC;
	d.fs.magic = LEATFS_MAGIC;
	d.fs.restart = sup->restart;
	d.takes_over = sup->restart->mounted;
	d.fs.ops = &mount_ops;
	d.fs.on_resent = open_files_resent;
	d.fs.root = LEAT_ROOT_INO;
	hmap_init(&d.fs.dirs, 64);
	snprintf(d.fs.mountpoint, sizeof(d.fs.mountpoint), "%s", opts.mountpoint);
	interrupt_init(&d.fs.interrupts);
	list_init(&d.fs.running);
	d.fs.slow_ms = opts.mount.slow_ms;
	d.fs.max_background = opts.mount.max_background;
	d.fs.local_locks = opts.mount.local_locks;
	d.fs.ino32 = opts.mount.ino32;
	watched_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* `systemctl reload` must not end a mount without a supervisor. */
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* the status of helpers is not needed: kernel/kernel_size.c */

	int status = open_files_init(&d.fs);
	if (status == 0)
		status = load_key(&d);
	if (status == 0)
		status = env_real_create(&eo, &d.fs.env);
	if (status == 0)
		status = transport_mux_create(opts.cluster.transport, &d.transport);
	if (status == 0)
		status = loop_create(d.fs.env, &lo, &d.fs.loop);
	if (status == 0)
		(void)metrics_server_try(opts.mount.metrics_addr, render_metrics, &d.fs);
	if (status == 0)
		status = fiber_spawn_on(d.fs.loop, "main", run, &d);
	if (status < 0) {
		log_error("cannot start: %s", status_text(status));
		notify_parent(&d, 1);
		return 1;
	}
	loop_run(d.fs.loop);
	return d.exit_status;
}

/* Serves without a supervisor, until the mount has ended. */
static int serve_alone(int ready_fd)
{
	struct supervised alone = {.device_fd = -1, .ready_fd = ready_fd};

	alone.restart = restart_state_create(NULL);
	if (alone.restart == NULL) {
		log_error("cannot start: %s", strerror(errno));
		return 1;
	}
	return serve(&alone);
}

static int serve_daemon(const struct supervised *sup)
{
	if (opts.foreground)
		notify_init();
	if (sup->restart != NULL)
		return serve(sup);
	log_error("%s: this release cannot take over the mount of another release: unmount and "
		  "mount again",
		  sup->mountpoint);
	return DAEMON_REFUSED;
}

static int serve_mount(char **argv, int ready_fd)
{
	return opts.mount.supervise ? supervise(&opts, argv, ready_fd) : serve_alone(ready_fd);
}

/* Like mount(8), prints nothing if the mount succeeds. When mount.leat has returned, the daemon
 * logs everything to the system log. */
static void be_quiet(bool daemon, int ready_fd)
{
	if (daemon && ready_fd < 0 && !opts.foreground) {
		mount_log_alone(&opts);
		return;
	}
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

/* Copies the words, since parsing changes them. */
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
	log_stderr_changed();
	return 0;
}

int main(int argc, char **argv)
{
	static struct supervised sup;
	bool daemon;
	char **words;
	int status;

	kernel_pages_helper(argc, argv);
	daemon = supervised_daemon(&sup);
	words = copy_words(argc, argv);
	if (words == NULL)
		return 1;
	log_init("mount.leat", LOG_INFO);
	log_never_wait();
	status = mount_options_parse(argc, argv, daemon ? sup.mountpoint : NULL, &opts);
	if (status != 0)
		return status < 0 ? 1 : 0;
	be_quiet(daemon, sup.ready_fd);
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
	/* In the background this is no service, whatever socket the environment names. */
	if (opts.foreground)
		notify_init();
	if (opts.log_file[0] && open_log() < 0)
		return 1;
	return opts.foreground ? serve_mount(words, -1) : serve_in_background(words);
}
