/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates parameters that are texts: words, addresses, processors. Any thread.
 */
#ifndef LEAT_COMMON_BASE_CONFIG_CHECK_H
#define LEAT_COMMON_BASE_CONFIG_CHECK_H

#include "common/base/config.h"

/* Validates a text, and may change it to its normal form. Returns 0, or -LE_CONFIG with the reason
 * in ret_err. */
int config_check_text(const struct config_param *p, char value[CONFIG_STR_MAX], char *ret_err,
		      size_t err_size) CHECK_RESULT;
/* Validates parameters of [cluster] that depend on each other: the transport must be able to use
 * one of the addresses. Returns like config_check_text(). */
int config_check_cluster(const struct cluster_params *c, char *ret_err,
			 size_t err_size) CHECK_RESULT;
/* Value for a message: whole if it is short, else cut and with dots. */
const char *config_shorten(const char *value, char buf[64]);

#endif
