#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# long: yes
# timeout: 3000
"""Ten minutes of the same on two copies and ten on three."""
from chain_storm import main

if __name__ == "__main__":
    for replicas in (2, 3):
        main(["--replicas", str(replicas), "--seconds", "600"])
