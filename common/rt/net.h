/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets and pollable descriptors for fibers, over the loop's io_uring. Real loops only: for
 * transport_tcp, the FUSE session and the ticket socket, not for code that must run in the
 * simulator. Each call yields until it is done or the deadline (monotonic us) passes.
 * net_shutdown(fd) or fiber_interrupt ends such a wait (-LE_INTR: the operation was cancelled and
 * no buffer is accessed any longer).
 */
#ifndef LEAT_COMMON_RT_NET_H
#define LEAT_COMMON_RT_NET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/base/status.h"

struct net_addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
};

#define NET_ADDR_TEXT_SIZE 64
/* "1.2.3.4:5", "[::1]:5", "host:5" (first answer of the resolver; blocks: at start only).
 * -LE_INVAL: another form; -LE_NO_HOST: the host does not exist; -LE_NO_NAMES: no name server
 * answers at present. */
int net_addr_parse(const char *text, struct net_addr *ret_addr) CHECK_RESULT;
/* Like net_addr_parse without blocking: -LE_NO_HOST where host is a name. */
int net_addr_numeric(const char *text, struct net_addr *ret_addr) CHECK_RESULT;
void net_addr_format(const struct net_addr *a, char ret_text[NET_ADDR_TEXT_SIZE]);

/* A listening socket with SO_REUSEADDR, close-on-exec. Port 0 picks one: ret_addr gets it. */
int net_listen(const struct net_addr *addr, int backlog, int *ret_fd, struct net_addr *ret_addr)
	CHECK_RESULT;
/* Waits for a connection. ret_peer may be NULL. */
int net_accept(int listen_fd, int *ret_fd, struct net_addr *ret_peer) CHECK_RESULT;
/* TCP_NODELAY is set on connected and accepted sockets; buffer sizes are the kernel's. */
int net_connect(const struct net_addr *addr, uint64_t deadline_us, int *ret_fd) CHECK_RESULT;
/* Receives up to len bytes: count, 0 at the end of the stream, or a negative status. Tries without
 * the ring first, so that available data costs one system call. */
int64_t net_recv(int fd, void *buf, size_t len, uint64_t deadline_us) CHECK_RESULT;
/* Receives exactly the bytes of iov (which is modified); -LE_DISCONNECTED at the end of the
 * stream. */
int net_recv_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us) CHECK_RESULT;
/* Sends all bytes of iov (which is modified). */
int net_send_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us) CHECK_RESULT;
void net_shutdown(int fd);
void net_close(int fd);
/* Waits until fd is ready for events (POLLIN, …). Returns the events, or a negative status. */
int net_poll(int fd, short events, uint64_t deadline_us) CHECK_RESULT;

#endif
