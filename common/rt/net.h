/*
 * Sockets and pollable descriptors for fibers, over the loop's io_uring. Real loops only:
 * used by transport_tcp, the FUSE session and the ticket socket, by nothing that must run in
 * the simulator. Each call yields until it is done or the deadline (monotonic us) passes.
 * A fiber in one of these is woken by net_shutdown(fd) or fiber_interrupt (-LE_INTR, then the
 * operation has been cancelled and no buffer is touched any more).
 */
#ifndef LEAT_RT_NET_H
#define LEAT_RT_NET_H

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
 * -LE_INVAL: none of these; -LE_NO_HOST: the host is not known; -LE_NO_NAMES: no name server
 * answers, later one may. */
int net_addr_parse(const char *text, struct net_addr *ret_addr) CHECK_RESULT;
/* Does not block: -LE_NO_HOST where host is a name. */
int net_addr_numeric(const char *text, struct net_addr *ret_addr) CHECK_RESULT;
/* Like net_addr_parse, in a fiber; yields only for a name, which threads of resolve.c look up. Who
 * asks again after -LE_NO_NAMES (the deadline, too) or -LE_INTR may get what has come since. */
int net_resolve(const char *text, uint64_t deadline_us, struct net_addr *ret_addr) CHECK_RESULT;
void net_addr_format(const struct net_addr *a, char ret_text[NET_ADDR_TEXT_SIZE]);

/* Bound, listening, SO_REUSEADDR, close-on-exec. port 0 picks one: ret_addr has it. */
int net_listen(const struct net_addr *addr, int backlog, int *ret_fd, struct net_addr *ret_addr)
	CHECK_RESULT;
int net_accept(int listen_fd, int *ret_fd, struct net_addr *ret_peer) CHECK_RESULT;
/* TCP_NODELAY is set on connected and accepted sockets, buffers are left to the kernel. */
int net_connect(const struct net_addr *addr, uint64_t deadline_us, int *ret_fd) CHECK_RESULT;
/* Up to len bytes: count, 0 at the end of the stream, or a negative status. Tries without the ring
 * first, so that ready data costs one system call. */
int64_t net_recv(int fd, void *buf, size_t len, uint64_t deadline_us) CHECK_RESULT;
/* Exactly the bytes of iov (which is modified), -LE_DISCONNECTED at the end of the stream. */
int net_recv_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us) CHECK_RESULT;
/* All bytes of iov (which is modified). */
int net_send_all(int fd, struct iovec *iov, int n_iov, uint64_t deadline_us) CHECK_RESULT;
void net_shutdown(int fd);
void net_close(int fd);
/* Waits until fd is ready for events (POLLIN, …): the events, or a negative status. */
int net_poll(int fd, short events, uint64_t deadline_us) CHECK_RESULT;

#endif
