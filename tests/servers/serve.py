#!/usr/bin/env python3
"""A small cache server: each line with a number on the unix socket argv[1] stores so many values."""
import socket
import sys


def cache_insert(cache, how_many):
    for _ in range(how_many):
        key = len(cache)
        cache[key] = [bytes(1024), [key], {"key": key}]


def main():
    cache = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        while True:
            peer, _ = listener.accept()
            with peer, peer.makefile("rw") as lines:
                for line in lines:
                    cache_insert(cache, int(line))
                    lines.write("ok\n")
                    lines.flush()


main()
