#!/bin/sh
# Print the limits of the container's own cgroup, of version 1 or 2.
if [ -e /sys/fs/cgroup/memory.max ]; then
    read -r bytes </sys/fs/cgroup/memory.max
    read -r quota period </sys/fs/cgroup/cpu.max
else
    read -r bytes </sys/fs/cgroup/memory/memory.limit_in_bytes
    read -r quota </sys/fs/cgroup/cpu/cpu.cfs_quota_us
    read -r period </sys/fs/cgroup/cpu/cpu.cfs_period_us
fi
echo "its container has $((quota / period)) CPUs and $((bytes >> 20)) MiB"
