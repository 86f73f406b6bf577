#!/bin/sh
# HTCondor's GPU monitor (STARTD_CRON_GPUs_MONITOR_EXECUTABLE), by which the startd measures the use of the GPUs.
#
# HTCondor's own monitor (condor_gpu_utilization) needs GPUs in the startd's container, which has none here. This one prints
# the engine's figures, which come from the GPU metrics container (gpu/monitoring/metrics_container.py). It runs as long as the
# startd, and reports an interval every ten seconds.
#
# The file programs.settings in the same folder sets:
#   client       client program for the engine (condor/engine-get.c)
#   socket       socket of the engine
#   gpu_monitor  HTTP path of the stream
here=${0%/*}
client='' socket='' gpu_monitor=''
# shellcheck source=/dev/null
. "$here/programs.settings"

exec "$client" stream "$socket" "$gpu_monitor"
