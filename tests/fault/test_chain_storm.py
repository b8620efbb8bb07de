#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""A short storm on two and on three replicas: one kill, one silence, one kill of the metadata
server. No operation fails, every byte is right, the chains become whole by themselves."""
from chain_storm import main

if __name__ == "__main__":
    for replicas in (2, 3):
        main(["--replicas", str(replicas), "--seconds", "0"])
