#!/bin/sh
# HTCondor's MACHINE_RESOURCE_INVENTORY_GPUs: prints the inventory of GPUs, once the engine has found them. Without an answer
# there are none.
#
# The file beside this one, programs.settings, sets:
#   python     Python, and client: the program by which the engine is asked (common/unix_http.py)
#   socket     where the engine listens
#   inventory  the path of the question
here=${0%/*}
python='' client='' socket='' inventory=''
# shellcheck source=/dev/null
. "$here/programs.settings"

# The engine looks for GPUs first, for a minute at most; HTCondor reads its inventory once in its life.
seconds=180
"$python" -IS "$client" get "$socket" "$inventory" "$seconds" || echo DetectedGPUs=0
