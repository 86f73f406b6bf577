#!/bin/sh
# HTCondor's STARTER: the program that the startd runs for each job.
#
# It becomes HTCondor's starter once the engine says that nothing is left of earlier jobs: the first thing that a starter does
# is to bring the job's files. Without that word there is no starter, and the job goes back to the queue.
#
# Where HTCondor is not root, this sweeps before it asks, and again after: what a starter was made to write, or left when it
# was killed, is of the same user as the next one's. No starter runs but this one, which has no sandbox yet. Sandboxes of lost
# jobs in which something is locked are opened to the jobs' user, who then opens that (the engine sees to it). If one stays all
# the same, there is no starter, either.
#
# The file beside this one, programs.settings, sets:
#   starter    the program that this one becomes
#   python     Python, and client: the program by which the engine is asked (common/unix_http.py)
#   socket     where the engine listens
#   next_job   the path of the question
#   execute    HTCondor's EXECUTE where HTCondor is not root, else nothing
#   temporary  folders for temporary files, which are emptied then; none has a space in its name
#   tidy       the program that removes
here=${0%/*}
starter='' python='' client='' socket='' next_job='' execute='' temporary='' tidy=''
# shellcheck source=/dev/null
. "$here/programs.settings"

# Longer than an engine needs that is started again, and for what a job can have left.
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
    stays=$(left) && [ -z "$stays" ] # where `left` cannot be run, something may stay
}

case ${1-} in
    -classad) ;; # the startd asks what the starter can
    *) may_begin || exit 1 ;;
esac
exec "$starter" "$@"
