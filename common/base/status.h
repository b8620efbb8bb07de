/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which something can fail, in one table. Functions return 0 (or a count) on success
 * and the negative of one of these on failure. The number is also sent on the wire, so a number is
 * never reused or changed.
 *
 * Numbers below 1000 are the errno of Linux of the same name. The others have an errno parent,
 * which an application gets.
 *
 * Retry class: NEVER   the answer is final
 *              SAME    send it to the same server again, after a back-off
 *              CONN    the connection is lost: reconnect, send it again
 *              MAP     the cluster map is old: refresh it, send it again
 */
#ifndef LEAT_COMMON_BASE_STATUS_H
#define LEAT_COMMON_BASE_STATUS_H

enum status_retry { RETRY_NEVER, RETRY_SAME, RETRY_CONN, RETRY_MAP };

/* X(name, number, errno parent, retry class, text) */
#define STATUS_TABLE(X) \
	X(OK, 0, 0, NEVER, "success") \
	X(PERM, 1, EPERM, NEVER, "operation not permitted") \
	X(NOENT, 2, ENOENT, NEVER, "no such file or directory") \
	X(INTR, 4, EINTR, NEVER, "interrupted") \
	X(IO, 5, EIO, NEVER, "input/output error") \
	X(NXIO, 6, ENXIO, NEVER, "no data or hole at or after this offset") \
	X(2BIG, 7, E2BIG, NEVER, "list too long") \
	X(BADF, 9, EBADF, NEVER, "not open for this") \
	X(AGAIN, 11, EAGAIN, NEVER, "would block") \
	X(NOMEM, 12, ENOMEM, NEVER, "out of memory") \
	X(ACCES, 13, EACCES, NEVER, "permission denied") \
	X(BUSY, 16, EBUSY, NEVER, "busy") \
	X(EXIST, 17, EEXIST, NEVER, "exists already") \
	X(XDEV, 18, EXDEV, NEVER, "not on the same file system") \
	X(NODEV, 19, ENODEV, NEVER, "no such device") \
	X(NOTDIR, 20, ENOTDIR, NEVER, "not a directory") \
	X(ISDIR, 21, EISDIR, NEVER, "is a directory") \
	X(INVAL, 22, EINVAL, NEVER, "invalid argument") \
	X(NFILE, 23, ENFILE, NEVER, "too many open files in the system") \
	X(MFILE, 24, EMFILE, NEVER, "too many open files in the process") \
	X(FBIG, 27, EFBIG, NEVER, "file too large") \
	X(NOSPC, 28, ENOSPC, NEVER, "no space left") \
	X(ROFS, 30, EROFS, NEVER, "read-only file system") \
	X(MLINK, 31, EMLINK, NEVER, "too many links") \
	X(RANGE, 34, ERANGE, NEVER, "result does not fit the buffer") \
	X(DEADLK, 35, EDEADLK, NEVER, "would wait for each other for ever") \
	X(NAMETOOLONG, 36, ENAMETOOLONG, NEVER, "name too long") \
	X(NOLCK, 37, ENOLCK, NEVER, "too many locks") \
	X(NOSYS, 38, ENOSYS, NEVER, "not implemented") \
	X(NOTEMPTY, 39, ENOTEMPTY, NEVER, "directory not empty") \
	X(LOOP, 40, ELOOP, NEVER, "too many symbolic links") \
	X(NODATA, 61, ENODATA, NEVER, "no such attribute") \
	X(OVERFLOW, 75, EOVERFLOW, NEVER, "value too large") \
	X(NOTSUP, 95, EOPNOTSUPP, NEVER, "not supported") \
	X(ADDRINUSE, 98, EADDRINUSE, NEVER, "address already in use") \
	X(ADDRNOTAVAIL, 99, EADDRNOTAVAIL, SAME, "address is not one of this machine's") \
	X(NETDOWN, 100, ENETDOWN, CONN, "network is down") \
	X(NETUNREACH, 101, ENETUNREACH, CONN, "network is not reachable") \
	X(CONNABORTED, 103, ECONNABORTED, CONN, "connection aborted") \
	X(CONNRESET, 104, ECONNRESET, CONN, "connection reset by the peer") \
	X(TIMEDOUT, 110, ETIMEDOUT, SAME, "timed out") \
	X(CONNREFUSED, 111, ECONNREFUSED, CONN, "connection refused") \
	X(HOSTDOWN, 112, EHOSTDOWN, CONN, "host is down") \
	X(HOSTUNREACH, 113, EHOSTUNREACH, CONN, "host is not reachable") \
	X(STALE, 116, ESTALE, NEVER, "stale file handle") \
	X(DQUOT, 122, EDQUOT, NEVER, "quota exceeded") \
	X(CANCELED, 125, EINTR, NEVER, "canceled") \
	X(DISCONNECTED, 1000, EIO, CONN, "connection lost") \
	X(BAD_FRAME, 1001, EPROTO, CONN, "malformed frame") \
	X(BAD_HASH, 1002, EPROTO, CONN, "frame checksum mismatch") \
	X(BAD_MESSAGE, 1003, EPROTO, NEVER, "malformed message") \
	X(TOO_BIG, 1004, EMSGSIZE, NEVER, "message larger than negotiated") \
	X(VERSION, 1005, EPROTO, NEVER, "no common protocol version") \
	X(AUTH, 1006, EACCES, NEVER, "authentication failed: wrong cluster key") \
	X(WRONG_CLUSTER, 1007, EPERM, NEVER, "belongs to another cluster") \
	X(UNKNOWN_OP, 1008, EPROTO, NEVER, "the server does not have this operation") \
	X(OVERLOAD, 1009, EBUSY, SAME, "server overloaded") \
	X(NOT_READY, 1010, EAGAIN, SAME, "server is starting or recovering") \
	X(SHUTDOWN, 1011, EAGAIN, CONN, "server is shutting down") \
	X(SESSION_GONE, 1012, EIO, NEVER, "session expired or unknown") \
	X(STALE_SEQ, 1013, EIO, NEVER, "request older than one already answered") \
	X(FENCED, 1014, EIO, NEVER, "this client was fenced") \
	X(STALE_EPOCH, 1015, EAGAIN, MAP, "cluster map is out of date") \
	X(NO_TARGET, 1016, EAGAIN, MAP, "target is not served here") \
	X(TARGET_DOWN, 1017, EIO, MAP, "target is not available") \
	X(BAD_CAP, 1018, EACCES, NEVER, "capability refused") \
	X(PENDING, 1019, EAGAIN, MAP, "a newer version is pending: only the head of the chain can read it") \
	X(NOT_HEAD, 1020, EAGAIN, MAP, "not the head of this chain") \
	X(NO_LEASE, 1021, EAGAIN, MAP, "no lease: the metadata server has not answered for too long") \
	X(ABORTED, 1022, EAGAIN, SAME, "an earlier write of the same chunk failed: try again") \
	X(REMOVED, 1023, EPERM, NEVER, "removed from the cluster (`leat target add` or `recover` takes it back)") \
	X(LOCKED, 1024, EAGAIN, NEVER, "locked by another owner") \
	X(FOREIGN, 1025, EPERM, NEVER, "another user may have put it there: not believed") \
	X(NO_HOST, 1026, EHOSTUNREACH, CONN, \
	  "no such host is known (check its name, and DNS or /etc/hosts)") \
	X(NO_NAMES, 1027, ETIMEDOUT, CONN, \
	  "no name server has told where that host is (check /etc/resolv.conf and DNS)") \
	X(LATE, 1028, EIO, NEVER, "lost with its server, and another client has used those bytes since") \
	X(CAP_EXPIRED, 1029, EIO, NEVER, \
	  "capability expired: the servers' clocks disagree (`leat status` compares them)") \
	X(LEAVING, 1030, EAGAIN, SAME, \
	  "this target is being given up as lost (`leat target remove --lost`)") \
	X(GIVEN_UP, 1031, EIO, NEVER, \
	  "data of this file was on targets that were given up as lost: remove the file") \
	X(FEW_HOSTS, 1032, ENOSPC, NEVER, \
	  "fewer hosts than a new file has copies: start more object servers (`leat status`)") \
	X(CORRUPT, 1100, EIO, NEVER, "stored data does not match its checksum") \
	X(CORRUPT_WIRE, 1101, EIO, SAME, "data damaged in flight") \
	X(CORRUPT_STORE, 1102, EIO, NEVER, "store is damaged") \
	X(STORE_FORMAT, 1103, EINVAL, NEVER, "not a store of this kind or version") \
	X(STORE_IN_USE, 1104, EBUSY, NEVER, "store is in use by another process") \
	X(STORE_OLD, 1105, EIO, NEVER, "store went back in time") \
	X(MISS, 1200, EIO, NEVER, "not in memory: it must be read first") \
	X(LEASED, 1202, EIO, NEVER, "other clients have leases on it, which must be recalled first") \
	X(CONFIG, 1201, EINVAL, NEVER, "the configuration cannot be used")

enum status {
#define X(name, number, parent, retry, text) LE_##name = number,
	STATUS_TABLE(X)
#undef X
};

/* Returns "NOENT"; "?" for an unknown number. Accepts the negative or the positive form. */
const char *status_name(int status);
/* Returns one sentence for people. */
const char *status_text(int status);
/* Returns the positive errno for an application (EIO for unknown numbers). */
int status_errno(int status);
enum status_retry status_retry(int status);
/* Returns the negative status for a positive errno, -LE_IO if none has that name. */
int status_from_errno(int err);

#define CHECK_RESULT __attribute__((warn_unused_result))

/* Returns from the calling function if expr fails: the only macro that hides a return. */
#define TRY(expr) \
	do { \
		int try_status_ = (expr); \
		if (try_status_ < 0) \
			return try_status_; \
	} while (0)

#endif
