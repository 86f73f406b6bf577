"""A job that leaves behind all that it can, and one of another user that looks for all of it."""

from tests.e2e.pool import Pool, result

MARK = "leftover-of-alice"
PORT = 45678

IMAGE = """
ARG BASE
FROM $BASE
RUN mkdir -m 1777 /open && mkdir -m 0777 /open/home
"""
"""An image with folders that everybody may write to."""

LEAVE = f"""
set -e
cd /open
for folder in . home /tmp /var/tmp /dev/shm $_CONDOR_SCRATCH_DIR $_CONDOR_SCRATCH_DIR/.. /k8spilot /k8spilot/bin; do
    echo secret >$folder/{MARK} 2>/dev/null || continue
    mkdir -p $folder/{MARK}.d/deep "$folder/ {MARK}
-rf *"
    ln -s / $folder/{MARK}.link; mkfifo $folder/{MARK}.pipe
    chmod 000 $folder/{MARK}.d/deep $folder/{MARK}.d
done
echo x >/dev/shm/sem.{MARK}
echo x >/dev/mqueue/{MARK} 2>/dev/null || : >/dev/mqueue/{MARK} || true
ipcmk --shmem 4096 >/dev/null; ipcmk --queue >/dev/null; ipcmk --semaphore 2 >/dev/null
perl -MSocket -e '
    $^F = 255; fork && exit; require POSIX; POSIX::setsid(); fork && exit;
    $SIG{{$_}} = "IGNORE" for qw(TERM HUP INT);
    socket(A, PF_INET, SOCK_STREAM, 0); bind(A, sockaddr_in({PORT}, INADDR_ANY)); listen(A, 5);
    socket(B, PF_UNIX, SOCK_STREAM, 0); bind(B, pack("S a*", AF_UNIX, "\\0{MARK}")); listen(B, 5);
    socket(C, PF_UNIX, SOCK_STREAM, 0); bind(C, sockaddr_un("/tmp/{MARK}.socket")); listen(C, 5);
    open(T, ">/tmp/{MARK}.ready"); close(T);
    close(STDOUT); close(STDERR);
    exec {{"perl"}} "{MARK}", "-e", "sleep 300";
' &
(setsid sh -c 'trap "" TERM HUP; sleep 301; : {MARK}' &)
while [ ! -e /tmp/{MARK}.ready ]; do sleep 0.1; done
"""

LOOK = f"""
set +e
find / -path /proc -prune -o -name '*{MARK}*' -print 2>/dev/null
find /tmp /var/tmp /dev/shm /dev/mqueue /open/home -mindepth 1 2>/dev/null
for kind in shm msg sem; do sed 1d /proc/sysvipc/$kind; done
ls -A /var/lib/condor/execute/slot 2>/dev/null | grep -v "$(basename $(dirname $_CONDOR_SCRATCH_DIR))"
for folder in /proc/[0-9]*; do tr '\\0' ' ' 2>/dev/null <$folder/cmdline | grep -e {MARK} -e 'sleep 30'; done
grep -h -e {MARK} /proc/net/unix
grep -h -i ":$(printf %04X {PORT}) .* 0A " /proc/net/tcp /proc/net/tcp6
true
"""


TRACES = [
    *(f"{folder}/{MARK}" for folder in ("/open", "/open/home", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")),
    f"/dev/shm/sem.{MARK}",
    f" {MARK}\n-rf *",
    f"@{MARK}",
    f":{PORT:04X} ",
    "sleep 300",
    "sleep 301",
    " 4096 ",  # the shared memory
]
"""Traces that the look finds while the job that leaves them still runs."""


def test_of_all_that_a_job_leaves_behind_the_next_one_finds_nothing(pool: Pool) -> None:
    image = f"docker://{pool.lab.push_image('e2e-open', IMAGE)}"
    left = pool.shell(LEAVE + LOOK, container_image=image)
    look = pool.shell(LOOK, container_image=image, user="bob")
    done = result(left)
    assert done.code == 0, done.stderr
    assert [trace for trace in TRACES if trace not in done.text] == []
    done = result(look)
    assert (done.code, done.stdout, done.stderr) == (0, b"", b"")


PEEK = """
env -0 | tr '\\n' ' ' | tr '\\0' '\\n'
echo ---
for folder in /proc/[0-9]*; do
    [ $folder = /proc/$$ ] || [ ! -e $folder/environ ] || tr '\\0' '\\n' 2>/dev/null <$folder/environ
done | grep -a -i -e kubernetes -e k8spilot -e glidein_start -e token
echo ---
ls -A /var/run/secrets /run/secrets /run/k8spilot /etc/condor /var/log/condor /run/pool 2>/dev/null
grep -i -h -e token -e secret /proc/mounts
"""


def test_a_job_sees_nothing_of_kubernetes_and_nothing_of_the_pilots_environment(pool: Pool) -> None:
    done = result(pool.shell(PEEK, image="debian:forky"))
    own, others, files = done.text.split("---\n")
    names = {line.split("=", 1)[0] for line in own.splitlines()}
    assert "_CONDOR_SCRATCH_DIR" in names
    assert not [
        name for name in names if name.upper().startswith(("KUBERNETES", "K8S", "GLIDEIN_START", "CONDOR_HOST"))
    ]
    assert not [name for name in names if "TOKEN" in name.upper() or "SECRET" in name.upper()]
    assert "10.235.0.1" not in own  # the API server's address
    assert (others, files) == ("", "")
