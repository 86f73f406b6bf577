#!/bin/sh
# Print the nanoseconds of processor that the container has used, and the bytes of its memory that are no file's, with
# cgroups of version 1 or 2.
cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null || sed -n 's/^usage_usec \(.*\)/\1000/p' /sys/fs/cgroup/cpu.stat
sed -n 's/^\(total_rss\|anon\) //p' /sys/fs/cgroup/memory/memory.stat /sys/fs/cgroup/memory.stat 2>/dev/null || true
