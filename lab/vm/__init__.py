"""A second environment for the lab: an emulated Debian machine with systemd and cgroup v2, on any computer.

`system` makes the machine's disk and kernel from packages, `luggage` a disk with the lab's cache and the environment of
Python, `emulator` starts it and talks to it, `place` prepares it for commands, `stories` runs the demo and tests in it.
"""
