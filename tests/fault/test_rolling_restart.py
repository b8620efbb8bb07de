#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Every server stops and starts, one after the other, under load, like in the upgrade procedure of
deploy/README.md: no operation fails, every byte is right, the stores are clean."""
from chain_storm import main

if __name__ == "__main__":
    main(["--replicas", "2", "--seconds", "0", "--events", "roll"])
