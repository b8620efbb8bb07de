#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# long: yes
# timeout: 7200
"""Like test_power_servers.py with a longer workload, cut at every sync."""
from test_power_servers import main

if __name__ == "__main__":
    main(ops=150, n_cuts=None, seeds=(1, 2))
