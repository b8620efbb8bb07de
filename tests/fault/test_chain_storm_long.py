#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# long: yes
# timeout: 3000
"""A storm of ten minutes on two replicas, and one of ten minutes on three."""
from chain_storm import main

if __name__ == "__main__":
    for replicas in (2, 3):
        main(["--replicas", str(replicas), "--seconds", "600"])
