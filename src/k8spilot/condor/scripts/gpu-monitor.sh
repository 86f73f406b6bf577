#!/bin/sh
# HTCondor's GPU monitor (STARTD_CRON_GPUs_MONITOR_EXECUTABLE): what the startd runs to know how busy the GPUs are.
#
# HTCondor's own (condor_gpu_utilization) needs the GPUs where the startd is, which here has none: this one asks the engine,
# which has the figures from the GPU metrics container (gpu/monitoring/container.py). It runs as long as the startd does, and
# reports an interval every ten seconds.
#
# The file beside this one, programs.settings, sets:
#   python       Python, and client: the program by which the engine is asked (common/unix_http.py)
#   socket       where the engine listens
#   gpu_monitor  the path of the stream
here=${0%/*}
python='' client='' socket='' gpu_monitor=''
# shellcheck source=/dev/null
. "$here/programs.settings"

exec "$python" -IS "$client" stream "$socket" "$gpu_monitor"
