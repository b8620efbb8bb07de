#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# long: yes
# timeout: 3600
"""A client with a million leases disappears; see lost_leases.py."""
import lost_leases

lost_leases.run(1000000)
