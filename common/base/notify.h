/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifies the service manager in the protocol of sd_notify(3): the service is ready, stops, or is
 * alive, and a sentence about its present work (`systemctl status` shows it). Without a manager
 * that listens (NOTIFY_SOCKET is not set) these functions do nothing.
 *
 * Any thread may call. Nothing here waits: a message that the manager does not accept immediately
 * is sent again by the next notify_alive.
 *
 * libsystemd has these functions too. Its manual allows reimplementing the protocol, which is
 * stable. libsystemd waits while the manager's socket is full; the loop of a mount must not,
 * because the manager itself may be waiting for that mount. And every program would load its
 * libraries, users of libleat too.
 */
#ifndef LEAT_COMMON_BASE_NOTIFY_H
#define LEAT_COMMON_BASE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment, which it leaves
 * unchanged. Call once, before there are threads. */
void notify_init(void);
/* Returns whether a manager listens. */
bool notify_wanted(void);

/* The service is ready; called also after notify_reloading. */
void notify_ready(void);
/* The service loads a new configuration or program, until notify_ready. */
void notify_reloading(void);
/* The service stops. Later calls have no effect. */
void notify_stopping(void);
/* Sets the status: one short sentence, without a full stop. Sent when it differs from the last
 * one. */
void notify_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Call every notify_alive_us from code that may get stuck. Before notify_ready it requests more
 * time to start; later it resets the watchdog. */
void notify_alive(void);
uint64_t notify_alive_us(void);
/* Returns how long the manager waits for notify_alive before it ends the service; 0: for ever. */
uint64_t notify_watchdog_us(void);

#endif
