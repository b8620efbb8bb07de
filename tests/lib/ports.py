# SPDX-License-Identifier: Apache-2.0
"""Ports for servers of a test: free now, and none that the kernel gives to outgoing connections, so
that a server that starts later, or again, finds its port free.

    ports.py N [HOST]    prints N of them
"""
import random
import socket
import sys


def free_ports(n, host="127.0.0.1"):
    ports = []
    while len(ports) < n:
        with socket.socket() as s:
            port = random.SystemRandom().randrange(10240, 32768)
            try:
                s.bind((host, port))
            except OSError:
                continue
            if port not in ports:
                ports.append(port)
    return ports


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1]), *sys.argv[2:]))
