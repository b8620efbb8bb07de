#include "fuse/supervisor.h"

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
#include "fuse/kept.h"
#include "fuse/kernel_mount.h"

#define ENV_NAME "LEAT_MOUNT_DAEMON"
/* Daemons that end so soon after they have begun to serve may die of what they are asked; so many
 * in a row, and the mount is given up: its programs get errors rather than wait for ever. One that
 * does not come so far has no part in that, it could not reach the metadata server, or whatever:
 * that is tried again and again. */
#define SHORT_MS       200
#define SHORT_MAX      10
#define PAUSE_MS       50
#define PAUSE_MAX_MS   5000
#define ARGV_EXTRA     3
#define CONF_MAX       (1 << 20)
#define LOOK_MS        500
#define TRYING_MS      10
#define LINGER_LOOKS   20
#define LINGER_LOOK_US 1000
/* linux/pidfd.h of Linux 6.9: of one thread */
#define PIDFD_OF_THREAD O_EXCL

/* What a daemon is made of. */
struct program {
	int fd;      /* -1: none */
	int conf_fd; /* a copy of the configuration: what becomes of the file does not matter */
};

struct supervisor {
	const struct mount_options *o;
	char **argv;
	char conf_word[64]; /* the last of argv */
	struct kept *kept;
	int device_fd, kept_fd, ready_fd;
	struct program good;      /* has worked so far */
	struct program next;      /* what is installed now, while that is tried */
	char installed[PATH_MAX]; /* where that is */
	pid_t daemon;             /* 0: none runs */
	int daemon_fd;      /* tells that its main thread has ended; -1: the kernel does not */
	int64_t start_ms;   /* none runs: when one is to be started */
	bool upgrading;     /* asked for what is installed */
	bool ending;        /* asked to unmount */
	uint32_t n_ready;   /* kept->n_ready before it was started */
	uint32_t n_refused; /* kept->n_refused when it was asked to hand over */
	int n_short, n_unready;
};

static bool is_trying(const struct supervisor *s)
{
	return s->next.fd >= 0;
}

static bool is_ready(const struct supervisor *s)
{
	return s->kept->n_ready != s->n_ready;
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

/* Into memory: a descriptor; -1: errno. Without a file of the usual name all is as by default. */
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

/* -1: errno. */
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

/* What is installed, and configured, from now on; if it can be read. */
static void try_installed(struct supervisor *s)
{
	s->upgrading = false;
	s->n_short = 0;
	if (program_open(s, s->installed, &s->next) == 0)
		return;
	log_error("%s, or its configuration: %s", s->installed, strerror(errno));
	s->kept->n_refused++;
}

/* The program that runs as the daemon has proved to work. */
static void keep_program(struct supervisor *s)
{
	program_close(&s->good);
	s->good = s->next;
	s->next = (struct program){-1, -1};
	s->kept->n_upgrades++;
	log_info("the daemon was replaced");
}

/* ---- starting ---- */

/* The daemon's side of fork: only returns if it cannot be. */
static void become_daemon(struct supervisor *s, const struct program *p, pid_t parent)
{
	char text[PATH_MAX + 64];
	sigset_t set;

	/* Alone it would serve a mount that nobody can replace. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* What comes before it looks at signals must not be lost, nor end it. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, DAEMON_SIGNAL_HAND_OVER);
	sigprocmask(SIG_SETMASK, &set, NULL);
	snprintf(text, sizeof(text), "%d %d %d %s", s->device_fd, s->kept_fd, s->ready_fd,
		 s->o->mountpoint);
	if (setenv(ENV_NAME, text, 1) < 0)
		return;
	snprintf(s->conf_word, sizeof(s->conf_word), "conf=/proc/self/fd/%d", p->conf_fd);
	fcntl(p->conf_fd, F_SETFD, 0);
	fcntl(s->device_fd, F_SETFD, 0);
	fcntl(s->kept_fd, F_SETFD, 0);
	if (s->ready_fd >= 0)
		fcntl(s->ready_fd, F_SETFD, 0);
	fexecve(p->fd, s->argv, environ);
}

static int start_daemon(struct supervisor *s)
{
	const struct program *p = is_trying(s) ? &s->next : &s->good;
	pid_t self = getpid(), pid;

	s->n_ready = s->kept->n_ready;
	s->kept->end = KEPT_KILLED;
	s->kept->anew = is_trying(s);
	pid = fork();
	if (pid == 0) {
		become_daemon(s, p, self);
		log_error("cannot start the daemon: %s", strerror(errno));
		_exit(DAEMON_REFUSED);
	}
	if (pid < 0)
		return -errno;
	s->daemon = pid;
	s->daemon_fd = (int)syscall(SYS_pidfd_open, pid, PIDFD_OF_THREAD);
	return 0;
}

/* Nobody serves. */
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
	log_error("no daemon for %s: %s", s->o->mountpoint, strerror(-err));
	s->start_ms = monotonic_ms() + PAUSE_MAX_MS;
}

/* ---- how it ends ---- */

/* Nobody serves who could do it. What is open keeps working. */
static void detach(struct supervisor *s)
{
	struct kernel_mount_info info;

	s->ending = false;
	/* Another one may lie there by now. */
	if (!kernel_mount_find(s->o->mountpoint, &info) ||
	    makedev(info.dev_major, info.dev_minor) != s->kept->dev)
		return;
	log_info("unmounting %s", s->o->mountpoint);
	if (umount2(s->o->mountpoint, MNT_DETACH) < 0)
		log_warn("umount %s: %s", s->o->mountpoint, strerror(errno));
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* It has ended unasked. True: the mount is given up. */
static bool crashed(struct supervisor *s, int st)
{
	bool ready = is_ready(s), lasted = monotonic_ms() - s->kept->ready_ms >= SHORT_MS;
	int pause_ms;

	s->kept->n_crashes += ready;
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
	log_error("%d daemons in a row did not last: %s is given up", s->n_short, s->o->mountpoint);
	return true;
}

/* The daemon has ended, wait status st. True: the mount has too, *ret_status is how. */
static bool ended(struct supervisor *s, int st, int *ret_status)
{
	const bool handed_over = s->kept->end == KEPT_HANDED_OVER, ready = is_ready(s);

	s->daemon = 0;
	s->start_ms = 0;
	*ret_status = WIFEXITED(st) ? WEXITSTATUS(st) : 32;
	if (s->kept->end == KEPT_UNMOUNTED)
		return true;
	/* One that was not ready has not read any requests that could be lost with it. */
	if (!s->kept->init_done || (ready && !handed_over && !s->kept->resend))
		return true;
	if (s->ending)
		detach(s);
	if (is_unmounted(s))
		return true;
	if (is_trying(s) && !ready) {
		s->kept->n_refused++;
		log_error("%s, with its configuration as it is now, cannot go on with the mount: "
			  "the former program does",
			  s->installed);
		program_close(&s->next);
		return false;
	}
	if (s->upgrading) {
		s->kept->n_crashes += !handed_over;
		return false;
	}
	return crashed(s, st);
}

/* The first daemon has what it was given; from then on nothing is said to who mounted. */
static void let_go(struct supervisor *s)
{
	int null;

	if (s->ready_fd < 0)
		return;
	close(s->ready_fd);
	s->ready_fd = -1;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return;
	dup2(null, 0);
	dup2(null, 1);
	if (!s->o->log_file[0])
		dup2(null, 2);
	close(null);
}

/*
 * A thread of the daemon may wait in the kernel for a page that is locked until a request is
 * answered: by the next daemon. So that one must not wait until all threads have ended, nor until a
 * core has been written, which waits for them too.
 */
static bool is_past_serving(const struct supervisor *s)
{
	struct pollfd p = {.fd = s->daemon_fd, .events = POLLIN};
	char path[64], line[128];
	bool past = false;
	FILE *f;

	/* From Linux 6.15 on this tells no more than waitpid when other threads are left. */
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

/* Has the daemon ended? Its wait status, or what is as good. */
static bool has_ended(struct supervisor *s, int *ret_status)
{
	pid_t pid;
	int st;

	/* Former ones too, whenever they are through. */
	while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
		if (pid != s->daemon)
			continue;
		*ret_status = st;
		goto ended;
	}
	if (!is_past_serving(s))
		return false;
	/* Nearly always all of it ends with the main thread. */
	for (int i = 0; i < LINGER_LOOKS; i++) {
		if (waitpid(s->daemon, ret_status, WNOHANG) == s->daemon)
			goto ended;
		usleep(LINGER_LOOK_US);
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
		s->ending = true; /* whether it hears that or not */
	} else if (sig == SIGHUP) {
		s->upgrading = true;
		s->n_refused = s->kept->n_refused;
		sig = DAEMON_SIGNAL_HAND_OVER;
	} else {
		return;
	}
	if (s->daemon != 0)
		kill(s->daemon, sig);
}

/* What the daemon has come to. True: the mount has ended. */
static bool look_at_daemon(struct supervisor *s, int *ret_status)
{
	int st;

	if (is_trying(s) && is_ready(s))
		keep_program(s);
	/* It has told why, and goes on. */
	if (s->upgrading && s->kept->n_refused != s->n_refused)
		s->upgrading = false;
	return has_ended(s, &st) && ended(s, st, ret_status);
}

static int wait_ms(const struct supervisor *s)
{
	int64_t left = s->start_ms - monotonic_ms();

	if (s->daemon != 0)
		return is_trying(s) ? TRYING_MS : LOOK_MS;
	return left < 0 ? 0 : left < LOOK_MS ? (int)left : LOOK_MS;
}

static int watch(struct supervisor *s, int signal_fd)
{
	struct signalfd_siginfo info;
	int status = 1;

	for (;;) {
		struct pollfd p[2] = {{.fd = signal_fd, .events = POLLIN},
				      {.fd = s->daemon_fd, .events = POLLIN}};

		(void)!poll(p, 2, wait_ms(s));
		while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
			take_signal(s, (int)info.ssi_signo);
		if (s->daemon != 0) {
			if (look_at_daemon(s, &status))
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

/* The command line of the daemon: with the configuration that it is to have. */
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
	/* Not for us: blocked in a daemon that has just been forked. */
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
	s.kept = kept_create(&s.kept_fd);
	s.device_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (n < 0 || s.argv == NULL || s.kept == NULL || s.device_fd < 0 ||
	    program_open(&s, "/proc/self/exe", &s.good) < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	s.kept->supervisor = getpid();
	signal_fd = watched_signals();
	if (signal_fd < 0 || chdir("/") < 0 || start_daemon(&s) < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	let_go(&s);
	return watch(&s, signal_fd);
}

bool supervised_daemon(struct supervised *ret_s)
{
	const char *text = getenv(ENV_NAME);
	int kept_fd, at = 0;

	if (text == NULL)
		return false;
	if (sscanf(text, "%d %d %d %n", &ret_s->device_fd, &kept_fd, &ret_s->ready_fd, &at) < 3 ||
	    at == 0)
		return false;
	snprintf(ret_s->mountpoint, sizeof(ret_s->mountpoint), "%s", text + at);
	unsetenv(ENV_NAME);
	fcntl(ret_s->device_fd, F_SETFD, FD_CLOEXEC);
	fcntl(kept_fd, F_SETFD, FD_CLOEXEC);
	if (ret_s->ready_fd >= 0)
		fcntl(ret_s->ready_fd, F_SETFD, FD_CLOEXEC);
	ret_s->kept = kept_open(kept_fd);
	/* The program may have been started by the name of a descriptor. */
	prctl(PR_SET_NAME, "mount.leat");
	return true;
}
