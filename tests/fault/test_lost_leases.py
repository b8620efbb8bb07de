#!/usr/bin/env python3
# timeout: 180
# alone: yes
"""A client with 20,000 leases disappears; see lost_leases.py."""
import lost_leases

lost_leases.run(20000)
