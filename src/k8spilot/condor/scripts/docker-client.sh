#!/bin/sh
# HTCondor's DOCKER: the program that HTCondor runs as docker's command line client.
#
# HTCondor calls a handful of commands, each with its words in one order. This program knows them word by word
# (docker-api.cpp in HTCondor) and refuses every other line, because a job's image, executable and arguments are on the same
# line: docker's client would take an image that begins with a dash for an option.
#
# Differences from docker's client:
# * A pull never fails. After a failed pull HTCondor holds the job and keeps the slot for half a minute. The `create` that
#   follows fails with the same message, and frees the slot at once.
# * Standard input is delivered. HTCondor opens it for `docker start`, which reads it only with --interactive.
# * A dead engine restarts within a second. `create` and `info` are repeated with the next engine: otherwise HTCondor would
#   hold the job, or mark docker as gone from the machine. The next engine does not know the job's container, so that `start`
#   fails and the job goes back to the queue. HTCondor requests the image's architecture before that, and gets none.
# * Requests with a constant answer are answered here: the list of images (empty), tagging, the id of an image (none). That
#   saves five starts of docker's client for each job.
# * HTCondor inspects a container after the end of `docker start`. It would take a container that was never started for a
#   successful job, so that this inspection fails and the job goes back to the queue.
# * A job has at most eight sessions. The job itself can request sessions from the starter, through a socket in its sandbox,
#   and each session has a client here, in the pilot's memory.
#
# The file programs.settings in the same folder sets:
#   docker    docker's own client
#   rootless  whether HTCondor runs without root: yes, or empty
#   extra     DOCKER_EXTRA_ARGUMENTS of HTCondor's configuration, as words of a shell
# The starter has the folder for its slot's sandboxes in _CONDOR_EXECUTE (starter.sh).
here=${0%/*}
docker='' rootless='' extra=''
# shellcheck source=/dev/null
. "$here/programs.settings"

# For a job that sends credentials HTCondor names a folder with a file that the user wrote. Docker's client would use more of
# it than the credentials (headers, programs), and the kubelet cannot use them. So replace it by a file that only marks them.
case ${DOCKER_CONFIG-} in
    '' | "$here/docker") ;;
    *) export DOCKER_CONFIG="$here/docker-of-senders" ;;
esac

refuse() {
    echo "k8spilot: $*" >&2
    exit 1
}

refuse_line() {
    refuse "HTCondor called docker in a way that k8spilot does not know ('$1'); report the job's submit commands to the site"
}

is_job() { # HTCondor's names of containers (docker_proc.cpp, StartJob)
    case $1 in
        *[!A-Za-z0-9_.-]*) return 1 ;;
        *PID????????*) return 1 ;;
        HTCJob[0-9]*_[0-9]*_*PID[0-9]*) return 0 ;;
    esac
    return 1
}

is_number() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
}

is_mount() { # a bind mount, read-only or not
    case $1 in
        *,*,*,*,*) return 1 ;;
        type=bind,source=/*,target=/*,readonly) return 0 ;;
        *,*,*,*) return 1 ;;
        type=bind,source=/*,target=/*) return 0 ;;
    esac
    return 1
}

# Checks the first character only. The engine checks the rest of the name, with a clear message.
is_image() {
    case $1 in [A-Za-z0-9[]*) ;; *) return 1 ;; esac
}

# Checks the place of an option in HTCondor's line: after the earlier ones, and twice only if HTCondor repeats it.
at() {
    [ "$1" -gt "$place" ] || { [ "$1" = "$place" ] && [ "${2-}" = again ]; } || return 1
    place=$1
}

starts_with_extra() {
    eval "for expected in $extra; do [ \"\${1-}\" = \"\$expected\" ] || return 1; shift; done"
}

# shellcheck disable=SC2329 # called by eval, which removes the quotes of the words in $extra
count() { echo $#; }

# Checks the line of `docker create` (createContainer). A word that is not an option in its place must be the image.
check_create() {
    place=0 labelled=''
    while [ $# -gt 0 ]; do
        words=1
        if [ -n "$extra" ] && [ "$place" -ge 17 ] && starts_with_extra "$@"; then break; fi
        case $1 in
            --cpuset-cpus=*) at 1 ;;
            --cpu-shares=*) at 1 ;;
            --memory=*) at 2 ;;
            --cap-drop=all) at 3 ;;
            --cap-add=SYS_PTRACE) at 4 ;;
            --security-opt) words=2; [ "${2-}" = no-new-privileges ] && at 5 ;;
            --init) at 6 ;;
            --name) words=2; is_job "${2-}" && at 7 ;;
            --label=org.htcondorproject=True) [ "$place" = 7 ] && at 8 && labelled=yes ;;
            --log-driver) words=2; [ "${2-}" = none ] && at 9 ;;
            -e) words=2; case ${2-} in [!=]*=*) at 10 again ;; *) false ;; esac ;;
            --volume) words=2; at 11 again ;;
            --mount) words=2; is_mount "${2-}" && at 11 again ;;
            --device) words=2; at 12 again ;;
            --workdir) words=2; at 13 ;;
            --user) words=2; [ "$place" = 13 ] && at 14 ;;
            --group-add) words=2; is_number "${2-}" && at 15 again ;;
            --network=host) [ "$place" -ge 14 ] && at 17 ;; # a job with this option has no host name of its own
            --network=*) [ "$place" -ge 14 ] && at 16 ;;
            --hostname) words=2; [ "$place" -ge 14 ] && at 17 ;;
            -p) words=2; at 18 again ;;
            --pull) words=2; [ "${2-}" = always ] && at 19 ;;
            *) break ;;
        esac || refuse_line "$1"
        [ $# -ge $words ] || refuse_line "$1"
        shift $words
    done
    [ -n "$labelled" ] && [ "$place" -ge 17 ] || refuse_line "${1-}"
    if [ -n "$extra" ]; then
        starts_with_extra "$@" || refuse "the line for docker lacks the DOCKER_EXTRA_ARGUMENTS that HTCondor had when the pilot \
started; restart the pilot after a change of HTCondor's configuration"
        eval "shift \$(count $extra)"
    fi
    if [ "${1-}" = --shm-size ]; then
        is_number "${2-}" || refuse "DOCKER_SHM_SIZE in HTCondor's configuration is not a number of bytes ('${2-}')"
        shift 2
    fi
    if [ "${1-}" = --entrypoint ] && [ $# -ge 3 ]; then shift 2; fi
    is_image "${1-}" ||
        refuse "'${1-}' is not the name of an image; set container_image or docker_image in the submit file to one"
}

# Checks the line of `docker exec` (execInContainer): -i or -ti, variables, the container, the command.
check_exec() {
    case ${1-} in -i | -ti) shift ;; *) refuse_line "exec ${1-}" ;; esac
    while [ "${1-}" = -e ]; do
        case ${2-} in [!=]*=*) shift 2 ;; *) refuse_line "exec -e ${2-}" ;; esac
    done
    is_job "${1-}" || refuse_line "exec ${1-}"
}

ask_again() {
    for _ in 0 1 2 3 4 5 6 7 8 9; do
        said=$("$docker" "$@" 2>&1)
        status=$?
        case $status$said in
            [!0]*"error during connect: "* | [!0]*"Cannot connect to the Docker daemon"*) sleep 3 ;;
            *) break ;;
        esac
    done
    [ "$status" = 0 ] || exec >&2
    printf '%s\n' "$said"
    exit "$status"
}

# Without root, HTCondor's user owns the sandboxes. The job, whose container has the group of their folder, may change the
# content of its sandbox, but not replace the sandbox. The previous job's container has ended when `create` is answered.
open_sandbox() {
    for folder in "$_CONDOR_EXECUTE"/dir_*; do
        find "$folder/scratch" "$folder/user" -xdev ! -type l -user "$(id -u)" \
            -exec chgrp "$(stat --format %g "$_CONDOR_EXECUTE")" {} + -exec chmod g+rwX {} + -type d -exec chmod g+s {} +
    done 2>/dev/null
}

# Without root the engine does not see the sandboxes. So labels have what the job requested: the disk in KiB, if it is a
# number, and the number of GPUs, because HTCondor's variables name all GPUs of the slot for each job.
create() {
    if [ -n "$rootless" ]; then
        disk=$(requested RequestDisk '????????????????*' '' "$@")
        [ -z "$disk" ] || set -- --label "k8spilot.disk=$disk" "$@"
    fi
    case " $* " in
        *" CUDA_VISIBLE_DEVICES=GPU-"* | *" CUDA_VISIBLE_DEVICES=MIG-"*)
            [ -z "$rootless" ] || set -- --label "k8spilot.gpus=$(requested RequestGPUs '?????*' 0 "$@")" "$@" ;;
    esac
    ask_again create --interactive "$@"
}

# Prints the number of an attribute in the job's ad, `$3` without the attribute, and an empty string if the number is unknown
# or matches `$2`. A job can replace its ad by a link or a pipe, and write any number into it.
requested() {
    name=$1 beyond=$2 default=$3
    shift 3
    for one; do
        case $one in
            _CONDOR_SCRATCH_DIR=*)
                said=$(dd "if=${one#*=}/.job.ad" iflag=nofollow,nonblock bs=64K count=64 2>/dev/null) || return
                said=$(printf '%s\n' "$said" |
                    sed -n "/^${name}[ \t]*=/I{s/^[^=]*=[ \t]*//;s/[ \t\r]*\$//;p;q}")
                # shellcheck disable=SC2254 # a pattern
                case ${said:=$default} in *[!0-9]* | $beyond) ;; *) echo "$said" ;; esac
                return ;;
        esac
    done
}

look_after_start() {
    said=$("$docker" "$@") || exit
    case $said in
        *'
ExitCode=0
StartedAt="0001-'*'
DockerError=""'*)
            refuse "docker's client ended before it started the job, which goes back to the queue" ;;
    esac
    printf '%s\n' "$said"
}

begin_session() {
    for number in 1 2 3 4 5 6 7 8; do
        exec 9>"$here/sessions/${_CONDOR_EXECUTE##*/}-$number"
        flock --nonblock 9 && exec "$docker" "$@" # keeps the file open until it ends
    done
    refuse "this job has 8 sessions already; end one of them first"
}

inspect() { # inspect --format TEXT WHAT
    case "$1 $2" in
        "--format {{.Id}} {{.Metadata.LastTagTime}}") [ $# = 2 ] && exit 0 ;;
        "--format {{.Architecture}}")
            [ $# = 3 ] && is_image "$3" && { "$docker" inspect "$@" 2>/dev/null || exit 0; } && exit 0 ;;
        "--format "*"StartedAt="*) [ $# = 3 ] && is_job "$3" && look_after_start inspect "$@" && exit 0 ;;
    esac
    refuse_line "inspect $*"
}

what=${1-}
[ $# = 0 ] || shift
case $what in
    create)
        check_create "$@"
        [ -n "$rootless" ] || create "$@"
        (create "$@") || exit
        open_sandbox
        exit 0 ;;
    exec)
        check_exec "$@"
        begin_session exec "$@" ;;
    inspect) inspect "$@" ;;
esac
case $what:$#:${1-} in
    pull:2:-q) if is_image "$2"; then "$docker" pull -q "$2"; fi; exit 0 ;;
    start:2:-a) is_job "$2" && exec "$docker" start --interactive -a "$2" ;;
    kill:3:--signal) is_number "$2" && is_job "$3" && exec "$docker" kill --signal "$2" "$3" ;;
    rm:3:-f) [ "$2" = -v ] && is_job "$3" && exec "$docker" rm -f -v "$3" ;;
    pause:1:* | unpause:1:*) is_job "$1" && exec "$docker" "$what" "$1" ;;
    info:0:) ask_again info ;;
    -v:0:) exec "$docker" -v ;;
    container:3:prune) [ "$2 $3" = "-f --filter=label=org.htcondorproject=True" ] && exec "$docker" container prune -f "$3" ;;
    images:2:--format | images:2:-q | tag:2:*) exit 0 ;;
esac
refuse_line "$what $*"
