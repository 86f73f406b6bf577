#!/bin/sh
# HTCondor's MACHINE_RESOURCE_INVENTORY_GPUs: prints the inventory of GPUs, as soon as the engine has found them. Without an
# answer it prints an inventory without GPUs.
#
# The file programs.settings in the same folder sets:
#   client     client program for the engine (condor/engine-get.c)
#   socket     socket of the engine
#   inventory  HTTP path of the request
here=${0%/*}
client='' socket='' inventory=''
# shellcheck source=/dev/null
. "$here/programs.settings"

# The engine first looks for GPUs, for up to a minute; HTCondor reads its inventory only once.
seconds=180
"$client" get "$socket" "$inventory" "$seconds" || echo DetectedGPUs=0
