/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets for fibers. Every transfer is tried in place first. One that would block is submitted to
 * the ring, until it completes, the deadline passes or the fiber is interrupted; on return the
 * kernel no longer uses the buffers. Sockets stay in blocking mode (a blocked operation does not
 * delay others in the ring); MSG_DONTWAIT makes the first try.
 */
#include "common/rt/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/loop_impl.h"
#include "common/rt/uring.h"

#define IOV_PER_CALL 1024 /* UIO_MAXIOV */
#define LEN_MAX (1u << 30) /* a limit below that of a submission's length field */

/* ---- addresses ---- */

static socklen_t addr_len(const struct net_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

/* Maps an error of getaddrinfo; errno must still be that of the call. */
static int name_status(int err)
{
	switch (err) {
	case 0:
		return 0;
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		return -LE_NO_HOST;
	case EAI_AGAIN:
	case EAI_FAIL:
		return -LE_NO_NAMES;
	case EAI_MEMORY:
		return -LE_NOMEM;
	case EAI_SYSTEM:
		return status_from_errno(errno);
	default:
		return -LE_INVAL;
	}
}

static int addr_of(const char *text, int flags, struct net_addr *ret_addr)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICSERV | flags,
				  .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char host[256];
	const char *colon = strrchr(text, ':');
	size_t len = colon != NULL ? (size_t)(colon - text) : 0;
	int rc = -LE_INVAL;

	if (len == 0 || len >= sizeof(host) || colon[1] == '\0' ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
	    atoi(colon + 1) > 65535)
		return -LE_INVAL;
	if (text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
		hints.ai_family = AF_INET6;
	}
	memcpy(host, text, len);
	host[len] = '\0';
	TRY(name_status(getaddrinfo(host, colon + 1, &hints, &found)));
	if (found->ai_addrlen <= sizeof(*ret_addr)) {
		memset(ret_addr, 0, sizeof(*ret_addr));
		memcpy(ret_addr, found->ai_addr, found->ai_addrlen);
		rc = 0;
	}
	freeaddrinfo(found);
	return rc;
}

int net_addr_parse(const char *text, struct net_addr *ret_addr)
{
	return addr_of(text, 0, ret_addr);
}

int net_addr_numeric(const char *text, struct net_addr *ret_addr)
{
	return addr_of(text, AI_NUMERICHOST, ret_addr);
}

void net_addr_format(const struct net_addr *a, char ret_text[NET_ADDR_TEXT_SIZE])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
		snprintf(ret_text, NET_ADDR_TEXT_SIZE, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
		snprintf(ret_text, NET_ADDR_TEXT_SIZE, "%s:%u", host, ntohs(a->in.sin_port));
	}
}

/* ---- connections ---- */

static void set_nodelay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int net_listen(const struct net_addr *addr, int backlog, int *ret_fd, struct net_addr *ret_addr)
{
	struct net_addr bound;
	socklen_t len = sizeof(bound);
	int one = 1;
	int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return status_from_errno(errno);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	memset(&bound, 0, sizeof(bound));
	if (bind(fd, &addr->sa, addr_len(addr)) < 0 || listen(fd, backlog) < 0 ||
	    getsockname(fd, &bound.sa, &len) < 0) {
		int rc = status_from_errno(errno);

		close(fd);
		return rc;
	}
	if (ret_addr != NULL)
		*ret_addr = bound;
	*ret_fd = fd;
	return 0;
}

int net_accept(int listen_fd, int *ret_fd, struct net_addr *ret_peer)
{
	struct net_addr peer;
	socklen_t len = sizeof(peer);
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);
	int fd;

	memset(&peer, 0, sizeof(peer));
	io_uring_prep_accept(sqe, listen_fd, &peer.sa, &len, SOCK_CLOEXEC);
	fd = uring_end_until(&op, sqe, NO_DEADLINE);
	if (fd < 0)
		return fd;
	rt_mark_defined(&peer, sizeof(peer));
	set_nodelay(fd);
	if (ret_peer != NULL)
		*ret_peer = peer;
	*ret_fd = fd;
	return 0;
}

int net_connect(const struct net_addr *addr, uint64_t deadline_us, int *ret_fd)
{
	struct uring_op op;
	struct io_uring_sqe *sqe;
	int rc, fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return status_from_errno(errno);
	set_nodelay(fd);
	sqe = uring_begin(&op);
	io_uring_prep_connect(sqe, fd, &addr->sa, addr_len(addr));
	rc = uring_end_until(&op, sqe, deadline_us);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

void net_shutdown(int fd)
{
	shutdown(fd, SHUT_RDWR);
}

void net_close(int fd)
{
	close(fd);
}

/* ---- transfers ---- */

/* Maps the various errors of a broken connection to -LE_DISCONNECTED. */
static int transfer_status(int rc)
{
	if (rc >= 0)
		return rc;
	switch (rc) {
	case -LE_TIMEDOUT:
	case -LE_INTR:
	case -LE_NOMEM:
	case -LE_BADF:
	case -LE_INVAL:
		return rc;
	default:
		return -LE_DISCONNECTED;
	}
}

/* Maps the errno of the first try in place: 0 if the transfer has to wait, or a negative status. */
static int try_failed(int err)
{
	if (err == EAGAIN || err == EINTR)
		return 0;
	return err == ETIMEDOUT ? -LE_DISCONNECTED : transfer_status(status_from_errno(err));
}

/* Completes a transfer in the ring. ETIMEDOUT from the kernel means a broken connection, not the
 * deadline. */
static int transfer_end(struct uring_op *op, struct io_uring_sqe *sqe, uint64_t deadline_us)
{
	int rc = uring_end_until(op, sqe, deadline_us);

	return op->res == -ETIMEDOUT ? -LE_DISCONNECTED : transfer_status(rc);
}

int64_t net_recv(int fd, void *buf, size_t len, uint64_t deadline_us)
{
	struct io_uring_sqe *sqe;
	struct uring_op op;
	ssize_t got = recv(fd, buf, len, MSG_DONTWAIT);
	int n;

	if (got >= 0)
		return got;
	TRY(try_failed(errno));
	sqe = uring_begin(&op);
	io_uring_prep_recv(sqe, fd, buf, len < LEN_MAX ? len : LEN_MAX, 0);
	n = transfer_end(&op, sqe, deadline_us);
	if (n > 0)
		rt_mark_defined(buf, (size_t)n);
	return n;
}

/* Drops len bytes from the front. */
static void iov_advance(struct iovec **iov, int *n_iov, size_t len)
{
	while (*n_iov > 0 && len >= (*iov)->iov_len) {
		len -= (*iov)->iov_len;
		(*iov)++;
		(*n_iov)--;
	}
	if (len > 0) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + len;
		(*iov)->iov_len -= len;
	}
}

static void iov_mark_defined(const struct iovec *iov, int n_iov, int n)
{
	for (int i = 0; i < n_iov && n > 0; i++) {
		rt_mark_defined(iov[i].iov_base, iov[i].iov_len);
		n -= (int)iov[i].iov_len;
	}
}

int net_recv_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us)
{
	for (iov_advance(&iov, &n_iov, 0); n_iov > 0;) {
		struct msghdr msg = { .msg_iov = iov };
		ssize_t got;

		msg.msg_iovlen = (size_t)(n_iov < IOV_PER_CALL ? n_iov : IOV_PER_CALL);
		got = recvmsg(fd, &msg, MSG_DONTWAIT);
		if (got < 0)
			TRY(try_failed(errno));
		if (got < 0) {
			struct uring_op op;
			struct io_uring_sqe *sqe = uring_begin(&op);

			io_uring_prep_recvmsg(sqe, fd, &msg, MSG_WAITALL);
			got = transfer_end(&op, sqe, deadline_us);
			TRY((int)got);
			iov_mark_defined(iov, n_iov, (int)got);
		}
		if (got == 0)
			return -LE_DISCONNECTED;
		iov_advance(&iov, &n_iov, (size_t)got);
	}
	return 0;
}

int net_send_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us)
{
	for (iov_advance(&iov, &n_iov, 0); n_iov > 0;) {
		struct msghdr msg = { .msg_iov = iov };
		ssize_t sent;

		msg.msg_iovlen = (size_t)(n_iov < IOV_PER_CALL ? n_iov : IOV_PER_CALL);
		sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0)
			TRY(try_failed(errno));
		if (sent < 0) {
			struct uring_op op;
			struct io_uring_sqe *sqe = uring_begin(&op);

			io_uring_prep_sendmsg(sqe, fd, &msg, MSG_WAITALL | MSG_NOSIGNAL);
			sent = transfer_end(&op, sqe, deadline_us);
			TRY((int)sent);
		}
		iov_advance(&iov, &n_iov, (size_t)sent);
	}
	return 0;
}

int net_poll(int fd, short events, uint64_t deadline_us)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	io_uring_prep_poll_add(sqe, fd, (unsigned short)events);
	return uring_end_until(&op, sqe, deadline_us);
}
