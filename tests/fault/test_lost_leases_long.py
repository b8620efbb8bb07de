#!/usr/bin/env python3
# long: yes
# timeout: 3600
# alone: yes
"""A client with a million leases disappears; see lost_leases.py."""
import lost_leases

lost_leases.run(1000000)
