#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""A client with 20,000 leases disappears; see lost_leases.py."""
import lost_leases

lost_leases.run(20000)
