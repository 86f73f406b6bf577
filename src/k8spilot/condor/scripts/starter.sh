#!/bin/sh
# HTCondor's STARTER: the program that the startd runs for each job.
#
# It becomes HTCondor's starter when the engine reports that all leftovers of earlier jobs are removed, because a starter
# first transfers the job's files. Without that report there is no starter, and the job goes back to the queue.
#
# Without root, it removes files before and after the request to the engine: the files of a starter, also of a killed one,
# belong to the same user as those of the next starter. No other starter runs, and this one has no sandbox yet. Sandboxes of
# lost jobs with locked files are opened to the jobs' user, as whom the engine unlocks the files. If a sandbox stays
# nevertheless, there is no starter, either.
#
# The file programs.settings in the same folder sets:
#   starter    program that this one becomes
#   python     Python
#   client     client program for the engine (common/unix_http.py)
#   socket     socket of the engine
#   next_job   HTTP path of the request
#   execute    HTCondor's EXECUTE if HTCondor is not root, else empty
#   temporary  folders for temporary files, which are emptied without root; no name has a space
#   tidy       program that removes files (payload_init/tidy.c)
here=${0%/*}
starter='' python='' client='' socket='' next_job='' execute='' temporary='' tidy=''
# shellcheck source=/dev/null
. "$here/programs.settings"

# More than an engine needs to restart and to remove a job's leftovers.
seconds=300

left() {
    find "$execute" -mindepth 1 -maxdepth 1 ! -name 'dir_*.recover' "$@" 2>/dev/null
}

sweep() {
    # shellcheck disable=SC2086 # several folders
    "$tidy" remove $temporary
    left -exec "$tidy" delete {} +
    find "$execute" -mindepth 1 -xdev -user "$(id -u)" -type d \
        -exec chgrp "$(stat --format %g "$execute")" {} + -exec chmod g+rwxs {} +
} 2>/dev/null

may_begin() {
    [ -z "$execute" ] || sweep
    "$python" -IS "$client" get "$socket" "$next_job" "$seconds" >/dev/null || return 1
    [ -n "$execute" ] || return 0
    sweep
    stays=$(left) && [ -z "$stays" ] # if `left` cannot run, a sandbox may stay
}

case ${1-} in
    -classad) ;; # the startd's query for the starter's abilities
    *) may_begin || exit 1 ;;
esac
exec "$starter" "$@"
