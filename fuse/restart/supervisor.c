/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/restart/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/notify.h"
#include "fuse/kernel/kernel_mount.h"
#include "fuse/restart/restart_state.h"

#define ENV_NAME "LEAT_MOUNT_DAEMON"
/* If SHORT_MAX daemons in a row end within SHORT_MS of becoming ready, a request probably kills
 * them, and the supervisor gives the mount up: its programs get errors instead of waiting for ever.
 * A daemon that ends before it is ready does not count, since it may not have reached the metadata
 * server; the supervisor keeps starting others. */
#define SHORT_MS       200
#define SHORT_MAX      10
#define PAUSE_MS       50
#define PAUSE_MAX_MS   5000
#define ARGV_EXTRA     3
#define CONF_MAX       (1 << 20)
#define POLL_MS        500
#define TRYING_MS      10
#define LINGER_POLLS   20
#define LINGER_POLL_US 1000
/* linux/pidfd.h of Linux 6.9: of one thread */
#define PIDFD_OF_THREAD O_EXCL

/* A daemon's program and configuration. */
struct program {
	int fd;      /* -1: none */
	int conf_fd; /* a copy of the configuration: changes of the file do not affect it */
};

struct supervisor {
	const struct mount_options *o;
	char **argv;
	char conf_word[64]; /* the last word of argv */
	struct restart *restart;
	int device_fd, restart_state_fd, ready_fd;
	struct program good;      /* the last one that became ready */
	struct program next;      /* the installed one, while it is tried */
	char installed[PATH_MAX]; /* path of the installed program */
	pid_t daemon;             /* 0: none runs */
	/* a pidfd, readable when its main thread has ended; -1: the kernel has none */
	int daemon_fd;
	int64_t start_ms;   /* when to start a daemon, if none runs */
	bool upgrading;     /* the installed program has been requested (SIGHUP) */
	bool ending;        /* an unmount has been requested */
	uint32_t n_ready;   /* restart->n_ready before the daemon was started */
	uint32_t n_refused; /* restart->n_refused when the handover was requested */
	int n_short, n_unready;
	int64_t alive_ms; /* when the service manager gets the next sign of life */
};

static bool is_trying(const struct supervisor *s)
{
	return s->next.fd >= 0;
}

static bool is_ready(const struct supervisor *s)
{
	return s->restart->n_ready != s->n_ready;
}

static bool is_unmounted(const struct supervisor *s)
{
	struct pollfd p = {.fd = s->device_fd};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

/* ---- programs ---- */

static void program_close(struct program *p)
{
	if (p->fd >= 0)
		close(p->fd);
	if (p->conf_fd >= 0)
		close(p->conf_fd);
	*p = (struct program){-1, -1};
}

/* Copies the configuration into memory. Returns a descriptor, or -1 and sets errno. If the default
 * file does not exist, the copy is empty, which means default values. */
static int copy_conf(const struct mount_options *o)
{
	int from = open(o->conf[0] ? o->conf : CONFIG_PATH, O_RDONLY | O_CLOEXEC), to, err = 0;
	ssize_t n = 0, sum = 0;

	if (from < 0 && (errno != ENOENT || o->conf[0]))
		return -1;
	to = memfd_create("leat.conf", MFD_CLOEXEC);
	while (from >= 0 && to >= 0 && sum <= CONF_MAX &&
	       (n = sendfile(to, from, NULL, CONF_MAX)) > 0)
		sum += n;
	if (to < 0 || n < 0)
		err = errno;
	else if (sum > CONF_MAX)
		err = EFBIG;
	if (from >= 0)
		close(from);
	if (err == 0)
		return to;
	if (to >= 0)
		close(to);
	errno = err;
	return -1;
}

/* Opens a program, and copies the configuration. Returns 0, or -1 and sets errno. */
static int program_open(const struct supervisor *s, const char *path, struct program *ret_p)
{
	struct program p = {open(path, O_PATH | O_CLOEXEC), -1};

	if (p.fd >= 0)
		p.conf_fd = copy_conf(s->o);
	if (p.conf_fd < 0) {
		int err = errno;
		program_close(&p);
		errno = err;
		return -1;
	}
	*ret_p = p;
	return 0;
}

/* Makes the installed program and the present configuration the next to be started, if they can be
 * read. */
static void try_installed(struct supervisor *s)
{
	s->upgrading = false;
	s->n_short = 0;
	if (program_open(s, s->installed, &s->next) == 0)
		return;
	log_error("cannot read %s or its configuration: %s; the previous program goes on",
		  s->installed, strerror(errno));
	s->restart->n_refused++;
}

/* Keeps the program that was tried and has become ready. */
static void keep_program(struct supervisor *s)
{
	program_close(&s->good);
	s->good = s->next;
	s->next = (struct program){-1, -1};
	s->restart->n_upgrades++;
	log_info("%s: the daemon was replaced", s->o->mountpoint);
}

/* ---- starting ---- */

/* The daemon's side of fork. Returns only if it fails. */
static void become_daemon(struct supervisor *s, const struct program *p, pid_t parent)
{
	char text[PATH_MAX + 64];
	sigset_t set;

	/* The daemon ends with the supervisor, because no process could replace it then. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* Blocked, so that signals that arrive before the daemon reads them are not lost and do not
	 * end it. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, DAEMON_SIGNAL_HAND_OVER);
	sigprocmask(SIG_SETMASK, &set, NULL);
	snprintf(text, sizeof(text), "%d %d %d %s", s->device_fd, s->restart_state_fd, s->ready_fd,
		 s->o->mountpoint);
	if (setenv(ENV_NAME, text, 1) < 0)
		return;
	snprintf(s->conf_word, sizeof(s->conf_word), "conf=/proc/self/fd/%d", p->conf_fd);
	fcntl(p->conf_fd, F_SETFD, 0);
	fcntl(s->device_fd, F_SETFD, 0);
	fcntl(s->restart_state_fd, F_SETFD, 0);
	if (s->ready_fd >= 0)
		fcntl(s->ready_fd, F_SETFD, 0);
	fexecve(p->fd, s->argv, environ);
}

static int start_daemon(struct supervisor *s)
{
	const struct program *p = is_trying(s) ? &s->next : &s->good;
	pid_t self = getpid(), pid;

	s->n_ready = s->restart->n_ready;
	s->restart->end = RESTART_KILLED;
	s->restart->turned_ms = 0;
	s->restart->anew = is_trying(s);
	pid = fork();
	if (pid == 0) {
		become_daemon(s, p, self);
		log_error("%s: cannot start the daemon: %s", s->o->mountpoint, strerror(errno));
		_exit(DAEMON_REFUSED);
	}
	if (pid < 0)
		return -errno;
	s->daemon = pid;
	s->daemon_fd = (int)syscall(SYS_pidfd_open, pid, PIDFD_OF_THREAD);
	return 0;
}

/* Starts a daemon, since none runs: the installed program if that was requested; else the last good
 * one, after a pause. */
static void start_next(struct supervisor *s)
{
	int err;

	if (s->upgrading)
		try_installed(s);
	else if (monotonic_ms() < s->start_ms)
		return;
	err = start_daemon(s);
	if (err == 0)
		return;
	log_error("%s: cannot start a daemon: %s; the supervisor tries again", s->o->mountpoint,
		  strerror(-err));
	s->start_ms = monotonic_ms() + PAUSE_MAX_MS;
}

/* ---- the end of a daemon ---- */

/* Unmounts in place of a daemon, since none runs. Open files remain usable. */
static void detach(struct supervisor *s)
{
	struct kernel_mount_info info;

	s->ending = false;
	/* Another mount may be there by now. */
	if (!kernel_mount_find(s->o->mountpoint, &info) ||
	    makedev(info.dev_major, info.dev_minor) != s->restart->dev)
		return;
	log_info("unmounting %s", s->o->mountpoint);
	if (umount2(s->o->mountpoint, MNT_DETACH) < 0)
		log_warn("umount %s: %s", s->o->mountpoint, strerror(errno));
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* Handles the end of a daemon that had no request to end. Returns true if the mount is given up. */
static bool crashed(struct supervisor *s, int st)
{
	bool ready = is_ready(s), lasted = monotonic_ms() - s->restart->ready_ms >= SHORT_MS;
	int pause_ms;

	s->restart->n_crashes += ready;
	log_warn("the daemon of %s %s %d: another one goes on", s->o->mountpoint,
		 WIFSIGNALED(st) ? "was ended by signal" : "ended with status",
		 WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
	if (ready) {
		s->n_unready = 0;
		s->n_short = lasted ? 0 : s->n_short + 1;
		pause_ms = s->n_short > 1 ? s->n_short * PAUSE_MS : 0;
	} else {
		pause_ms = PAUSE_MS << smaller(s->n_unready++, 10);
	}
	s->start_ms = monotonic_ms() + smaller(pause_ms, PAUSE_MAX_MS);
	if (s->n_short < SHORT_MAX)
		return false;
	log_error("%s: %d daemons in a row ended within %d ms: the mount is given up, mount again",
		  s->o->mountpoint, s->n_short, SHORT_MS);
	return true;
}

/* Handles the end of the daemon, with wait status st. Returns true if the mount has ended too, with
 * exit status *ret_status. */
static bool ended(struct supervisor *s, int st, int *ret_status)
{
	const bool handed_over = s->restart->end == RESTART_HANDED_OVER, ready = is_ready(s);

	s->daemon = 0;
	s->start_ms = 0;
	*ret_status = WIFEXITED(st) ? WEXITSTATUS(st) : 32;
	if (s->restart->end == RESTART_UNMOUNTED)
		return true;
	/* Without INIT no daemon can take over. A daemon that was ready may have read requests,
	 * which are lost if the kernel cannot resend them; one that was not ready has read none. */
	if (!s->restart->init_done || (ready && !handed_over && !s->restart->resend))
		return true;
	if (s->ending)
		detach(s);
	if (is_unmounted(s))
		return true;
	if (is_trying(s) && !ready) {
		s->restart->n_refused++;
		log_error(
			"%s: %s, with its present configuration, cannot go on with the mount; the "
			"previous program does",
			s->o->mountpoint, s->installed);
		program_close(&s->next);
		return false;
	}
	if (s->upgrading) {
		s->restart->n_crashes += !handed_over;
		return false;
	}
	return crashed(s, st);
}

/* Gives up the descriptor on which the first daemon reports, and leaves the terminal. */
static void let_go(struct supervisor *s)
{
	if (s->ready_fd < 0)
		return;
	close(s->ready_fd);
	s->ready_fd = -1;
	mount_leave_terminal(s->o);
}

/*
 * True if the daemon serves no longer: its main thread has ended, or it dumps core. Another of its
 * threads may wait in the kernel for a page that is locked until the next daemon answers a request.
 * So the supervisor starts the next daemon before all threads have ended, and before the core has
 * been written, which waits for them too.
 */
static bool is_past_serving(const struct supervisor *s)
{
	struct pollfd p = {.fd = s->daemon_fd, .events = POLLIN};
	char path[64], line[128];
	bool past = false;
	FILE *f;

	/* Since Linux 6.15 the pidfd, like waitpid, does not report the end while other threads are
	 * left. */
	if (s->daemon_fd >= 0 && poll(&p, 1, 0) == 1)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)s->daemon);
	f = fopen(path, "re");
	while (f && !past && fgets(line, sizeof(line), f))
		past = strncmp(line, "State:\tZ", 8) == 0 || strcmp(line, "CoreDumping:\t1\n") == 0;
	if (f)
		fclose(f);
	return past;
}

/* Returns true if the daemon has ended, with its wait status; or if it serves no longer, with
 * SIGKILL. */
static bool has_ended(struct supervisor *s, int *ret_status)
{
	pid_t pid;
	int st;

	/* This reaps previous daemons, too. */
	while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
		if (pid != s->daemon)
			continue;
		*ret_status = st;
		goto ended;
	}
	if (!is_past_serving(s))
		return false;
	/* The other threads nearly always end soon after the main thread. */
	for (int i = 0; i < LINGER_POLLS; i++) {
		if (waitpid(s->daemon, ret_status, WNOHANG) == s->daemon)
			goto ended;
		usleep(LINGER_POLL_US);
	}
	*ret_status = SIGKILL;
ended:
	if (s->daemon_fd >= 0)
		close(s->daemon_fd);
	s->daemon_fd = -1;
	return true;
}

static void take_signal(struct supervisor *s, int sig)
{
	if (sig == SIGTERM || sig == SIGINT) {
		s->ending = true; /* even if no daemon receives it */
		notify_stopping();
	} else if (sig == SIGHUP) {
		s->upgrading = true;
		notify_reloading();
		s->n_refused = s->restart->n_refused;
		sig = DAEMON_SIGNAL_HAND_OVER;
	} else {
		return;
	}
	if (s->daemon != 0)
		kill(s->daemon, sig);
}

/* Follows the state of the daemon. Returns true if the mount has ended. */
static bool check_daemon(struct supervisor *s, int *ret_status)
{
	int st;

	if (is_trying(s) && is_ready(s))
		keep_program(s);
	/* The daemon has refused to hand over: it has logged why, and continues. */
	if (s->upgrading && s->restart->n_refused != s->n_refused)
		s->upgrading = false;
	return has_ended(s, &st) && ended(s, st, ret_status);
}

/* Kills a daemon with a loop that is stuck, and another one takes over. Otherwise the watchdog of
 * the service manager would end the service, and the mount with it. */
static void check_loop(struct supervisor *s)
{
	int64_t patience_ms = (int64_t)(notify_watchdog_us() / 1000 * 2 / 3), turned_ms;

	turned_ms = s->restart->turned_ms;
	if (patience_ms == 0 || s->daemon == 0 || !is_ready(s) || turned_ms == 0 ||
	    monotonic_ms() - turned_ms < patience_ms)
		return;
	log_error("the daemon of %s has been stuck for %lld s: killing it", s->o->mountpoint,
		  (long long)(monotonic_ms() - turned_ms) / 1000);
	s->restart->turned_ms = 0; /* kill it only once */
	kill(s->daemon, SIGKILL);
}

/* Notifies the service manager: the supervisor is the service. The daemon itself sends the status
 * text. */
static void notify_manager(struct supervisor *s)
{
	if (!notify_wanted())
		return;
	if (s->daemon != 0 && is_ready(s) && !s->upgrading && !is_trying(s))
		notify_ready();
	if (monotonic_ms() >= s->alive_ms) {
		notify_alive();
		s->alive_ms = monotonic_ms() + (int64_t)notify_alive_us() / 1000;
	}
	check_loop(s);
}

static int wait_ms(const struct supervisor *s)
{
	int64_t left = s->start_ms - monotonic_ms();

	/* Poll faster while a process may wait until the daemon is ready or replaced. */
	if (s->daemon != 0)
		return is_trying(s) || (notify_wanted() && (!is_ready(s) || s->upgrading))
			       ? TRYING_MS
			       : POLL_MS;
	return left < 0 ? 0 : left < POLL_MS ? (int)left : POLL_MS;
}

static int watch(struct supervisor *s, int signal_fd)
{
	struct signalfd_siginfo info;
	int status = 1;

	for (;;) {
		struct pollfd p[2] = {{.fd = signal_fd, .events = POLLIN},
				      {.fd = s->daemon_fd, .events = POLLIN}};

		notify_manager(s);
		(void)!poll(p, 2, wait_ms(s));
		while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
			take_signal(s, (int)info.ssi_signo);
		if (s->daemon != 0) {
			if (check_daemon(s, &status))
				return status;
			continue;
		}
		if (s->ending)
			detach(s);
		if (is_unmounted(s))
			return 0;
		start_next(s);
	}
}

/* Returns the daemon's command line: argv, and the copied configuration. NULL: no memory. */
static char **daemon_argv(struct supervisor *s, char **argv)
{
	char **v;
	int n = 0;

	while (argv[n] != NULL)
		n++;
	v = calloc((size_t)n + ARGV_EXTRA, sizeof(*v));
	if (v == NULL)
		return NULL;
	memcpy(v, argv, (size_t)n * sizeof(*v));
	v[n] = "-o";
	v[n + 1] = s->conf_word;
	return v;
}

static int watched_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	/* Blocked, since a daemon inherits the mask and must not lose it. The supervisor does not
	 * read it. */
	sigaddset(&set, DAEMON_SIGNAL_HAND_OVER);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigdelset(&set, DAEMON_SIGNAL_HAND_OVER);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int supervise(const struct mount_options *o, char **argv, int ready_fd)
{
	struct supervisor s = {.o = o, .ready_fd = ready_fd, .next = {-1, -1}};
	ssize_t n = readlink("/proc/self/exe", s.installed, sizeof(s.installed) - 1);
	int signal_fd;

	s.argv = daemon_argv(&s, argv);
	s.restart = restart_state_create(&s.restart_state_fd);
	s.device_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (n < 0 || s.argv == NULL || s.restart == NULL || s.device_fd < 0 ||
	    program_open(&s, "/proc/self/exe", &s.good) < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	s.restart->supervisor = getpid();
	signal_fd = watched_signals();
	if (signal_fd < 0 || chdir("/") < 0 || start_daemon(&s) < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	let_go(&s);
	return watch(&s, signal_fd);
}

void mount_log_alone(const struct mount_options *o)
{
	enum log_level level;

	if (o->log_file[0])
		return;
	log_to_system(NULL);
	if (log_level_parse(o->mount.log_level, &level) == 0)
		log_set_level(level);
}

void mount_leave_terminal(const struct mount_options *o)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		if (!o->log_file[0])
			dup2(null, 2);
		close(null);
	}
	mount_log_alone(o);
}

bool supervised_daemon(struct supervised *ret_s)
{
	const char *text = getenv(ENV_NAME);
	int restart_state_fd, at = 0;

	if (text == NULL)
		return false;
	if (sscanf(text, "%d %d %d %n", &ret_s->device_fd, &restart_state_fd, &ret_s->ready_fd,
		   &at) < 3 ||
	    at == 0)
		return false;
	snprintf(ret_s->mountpoint, sizeof(ret_s->mountpoint), "%s", text + at);
	unsetenv(ENV_NAME);
	fcntl(ret_s->device_fd, F_SETFD, FD_CLOEXEC);
	fcntl(restart_state_fd, F_SETFD, FD_CLOEXEC);
	if (ret_s->ready_fd >= 0)
		fcntl(ret_s->ready_fd, F_SETFD, FD_CLOEXEC);
	ret_s->restart = restart_state_open(restart_state_fd);
	/* fexecve names the process after the descriptor. */
	prctl(PR_SET_NAME, "mount.leat");
	return true;
}
