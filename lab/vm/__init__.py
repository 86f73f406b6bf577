"""A second place for a lab: an emulated Debian machine with systemd and cgroup v2, whatever this machine has.

`system` makes the machine's disk and kernel from packages, `luggage` a disk with the lab's cache and the environment of
Python, `machine` starts it and talks to it, `stories` runs the demo and tests in it.
"""
