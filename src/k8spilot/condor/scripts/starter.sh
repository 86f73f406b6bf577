#!/bin/sh
# HTCondor's STARTER: the program that the startd runs for each job.
#
# It finds its slot in the startd's arguments (-a slot3, or -a slot1_3 of a partitionable slot; Starter.cpp in HTCondor). The
# starter and its docker clients get the slot's Docker socket and its folder for sandboxes, which the slot's payload container
# mounts.
#
# It becomes HTCondor's starter when the engine reports that all leftovers of earlier jobs are removed, because a starter
# first transfers the job's files. Without that report there is no starter, and the job goes back to the queue.
#
# Without root, it removes files before and after the request to the engine: the files of a starter, also of a killed one,
# belong to the same user as those of the next starter. No other starter of the slot runs, and this one has no sandbox yet.
# Each slot has folders of its own, but the starter's copies of users' credentials for docker are in /tmp (docker_proc.cpp);
# those of starters that run stay. Sandboxes of lost jobs with locked files are opened to the jobs' user, as whom the engine
# unlocks the files. If a sandbox stays nevertheless, there is no starter, either.
#
# The file programs.settings in the same folder sets:
#   starter    program that this one becomes
#   client     client program for the engine (condor/engine-get.c)
#   rootless   whether HTCondor runs without root: yes, or empty
#   next_job   HTTP path of the request
#   tidy       program that removes files (payload_init/tidy.c)
#   slot       slot of a starter without a slot, which the startd asks for its abilities
# The file SLOT.settings, with HTCondor's name of the slot, sets:
#   slot_socket  socket of the engine for the slot
#   docker_host  DOCKER_HOST of the slot's docker clients
#   execute      EXECUTE of the slot's starters
#   temporary    folders for temporary files, which are emptied without root; no name has a space
here=${0%/*}
starter='' client='' rootless='' next_job='' temporary='' tidy='' slot='' slot_socket='' docker_host='' execute=''
# shellcheck source=/dev/null
. "$here/programs.settings"

last=''
for word; do
    [ "$last" != -a ] || slot=$word
    last=$word
done
case $slot in '' | *[!a-z0-9_]*) exit 1 ;; esac
# shellcheck source=/dev/null
. "$here/$slot.settings" || exit 1
export DOCKER_HOST="$docker_host" _CONDOR_EXECUTE="$execute"
[ -z "$rootless" ] || export TMPDIR="${temporary%% *}" K8SPILOT_FOLDERS="$execute $temporary"

# More than an engine needs to restart and to remove a job's leftovers.
seconds=300

left() {
    find "$execute" -mindepth 1 -maxdepth 1 ! -name 'dir_*.recover' "$@" 2>/dev/null
}

sweep() {
    # shellcheck disable=SC2086 # several folders
    mkdir -p $temporary && "$tidy" remove $temporary
    for folder in /tmp/docker_config.*; do
        [ -e "/proc/${folder##*.}" ] || "$tidy" delete "$folder"
    done
    left -exec "$tidy" delete {} +
    find "$execute" -mindepth 1 -xdev -user "$(id -u)" -type d \
        -exec chgrp "$(stat --format %g "$execute")" {} + -exec chmod g+rwxs {} +
} 2>/dev/null

may_begin() {
    [ -z "$rootless" ] || sweep
    "$client" get "$slot_socket" "$next_job" "$seconds" >/dev/null || return 1
    [ -n "$rootless" ] || return 0
    sweep
    stays=$(left) && [ -z "$stays" ] # if `left` cannot run, a sandbox may stay
}

case ${1-} in
    -classad) ;; # the startd's query for the starter's abilities
    *) may_begin || exit 1 ;;
esac
exec "$starter" "$@"
