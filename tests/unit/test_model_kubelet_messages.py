"""Messages of the kubelet and the runtime as they were seen.

Kubernetes 1.36; containerd 2.4 with runc 1.1, and CRI-O 1.36 with runc 1.5.
"""

import json

import pytest

from k8spilot.model.kubelet_messages import plain

RUN = (
    "RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: "
)
KUBELET = "/var/lib/kubelet/pods/2d9a40a9-8769-4e48-ac1c-6c11bab503ee"
ROOT = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/eb49852d523f66f965293519a3c/rootfs"

SAID = {
    f'{RUN}error during container init: error mounting "{KUBELET}/volumes/kubernetes.io~empty-dir/tmp" to rootfs at '
    f'"/tmp": mount {KUBELET}/volumes/kubernetes.io~empty-dir/tmp:/tmp (via /proc/self/fd/6): not a directory': (
        "the image has something at /tmp over which the pod cannot mount (not a directory)"
    ),
    f'{RUN}error during container init: error mounting "/other/kubelet/pods/2d9a40a9-8769-4e48-ac1c-6c11bab503ee/h" '
    f'to rootfs at "/etc/hosts": open {ROOT}/etc/hosts: permission denied': (
        "the image has something at /etc/hosts over which the pod cannot mount (permission denied)"
    ),
    f'{RUN}error during container init: environment variable name can\'t be empty: "=x"': (
        'environment variable name can\'t be empty: "=x"'
    ),
    f"{RUN}error during container init: mkdir /bin/sh: not a directory": "mkdir /bin/sh: not a directory",
    f"{RUN}error during container init: mkdir {ROOT}/bin/sh: not a directory": "mkdir /bin/sh: not a directory",
    f"{RUN}error during container init: mkdir /opt/docker/run/containers/x: read-only file system": (
        "mkdir /opt/docker/run/containers/x: read-only file system"
    ),
    'RunContainerError: failed to start containerd task "00": OCI runtime start failed: exec format error': (
        "exec format error"
    ),
    f'RunContainerError: failed to generate container "00" spec: failed to generate spec: stat {KUBELET}/x: no file': (
        "stat a path of the node: no file"
    ),
}


@pytest.mark.parametrize("words", SAID)
def test_the_cause_comes_first_without_the_runtimes_steps_and_the_nodes_paths(words: str) -> None:
    assert plain(words) == f"its container does not start: {SAID[words]} (RunContainerError)"


CRIO = 'container create failed: time="2026-11-27T20:26:40Z" level=error msg="runc create failed: '
CRIO_RUN = f"{CRIO}unable to start container process: error during container init: "
MERGED = f"/mnt/images/overlay/{'0a' * 32}/merged"
SAID_BY_CRIO = {
    f'{CRIO_RUN}exec: \\"/no/such\\": stat /no/such: no such file or directory"\n': (
        'exec: "/no/such": stat /no/such: no such file or directory'
    ),
    f'{CRIO}Cwd must be an absolute path"\n': "Cwd must be an absolute path",
    f'{CRIO_RUN}error mounting \\"{KUBELET}/volumes/x\\" to rootfs at \\"/mnt\\": mount src={KUBELET}/volumes/x, '
    'dst=/mnt, dstFd=/proc/thread-self/fd/16, flags=MS_BIND|MS_REC: not a directory"\n': (
        "the image has something at /mnt over which the pod cannot mount (not a directory)"
    ),
    f'{CRIO_RUN}error mounting \\"{KUBELET}/volumes/x\\" to rootfs at \\"/mnt/a\\": create mountpoint for /mnt/a '
    'mount: lookup mountpoint target: securejoin.OpenInRoot /mnt/a: openat2 /mnt/a: not a directory"\n': (
        "the image has something at /mnt/a over which the pod cannot mount (not a directory)"
    ),
    f"mkdir {MERGED}/mnt: not a directory": "mkdir /mnt: not a directory",
    f"get exec user: unable to find user 65534: read {MERGED}/etc/passwd: is a directory": (
        "get exec user: unable to find user 65534: read /etc/passwd: is a directory"
    ),
    f"unable to follow symlinks to /etc/passwd file: SecureJoin {MERGED}//etc/passwd: too many levels of symbolic "
    "links": (
        "unable to follow symlinks to /etc/passwd file: SecureJoin /etc/passwd: too many levels of symbolic links"
    ),
}


@pytest.mark.parametrize("words", SAID_BY_CRIO)
def test_what_crio_passes_on_from_its_log_is_taken_out_of_it(words: str) -> None:
    expected = f"its container does not start: {SAID_BY_CRIO[words]} (CreateContainerError)"
    assert plain(f"CreateContainerError: {words}") == expected


def test_of_several_lines_of_crios_log_the_failures_count() -> None:
    warning = 'time="2026-11-27T20:26:40Z" level=warning msg="unable to get oom kill count" error="no such file"\n'
    failure = 'time="2026-11-27T20:26:40Z" level=error msg="runc create failed: cannot allocate memory"\n'
    for log, expected in (
        (warning + failure, "cannot allocate memory"),
        (failure + failure, "cannot allocate memory runc create failed: cannot allocate memory"),
        (warning, "unable to get oom kill count"),
        (failure.replace('"runc create failed: cannot allocate memory"', "killed"), "killed"),
    ):
        words = plain(f"CreateContainerError: container create failed: {log}")
        assert words == f"its container does not start: {expected} (CreateContainerError)"


def test_crios_second_attempt_as_an_artifact_is_left_out() -> None:
    pull = "ErrImagePull: unable to pull image or OCI artifact: pull image err: "
    asks = "initializing source docker://r/a:1: reading manifest 1 in r/a: manifest unknown"
    assert (
        plain(f"{pull}{asks}; artifact err: image reference: get manifest from ref: {asks}") == f"ErrImagePull: {asks}"
    )


def test_the_message_about_a_pull_stays_but_for_the_nodes_paths() -> None:
    pull = 'ErrImagePull: failed to pull and unpack image "r/a:1": failed to extract layer: mount callback failed on '
    path = "/mnt/disk/containerd/tmpmounts/containerd-mount2415"
    assert plain(f"{pull}{path}: unexpected EOF") == f"{pull}a path of the node: unexpected EOF"
    assert plain("ErrImagePull") == "ErrImagePull"


def test_a_message_of_any_length_is_read_at_once() -> None:
    for piece in (
        "error during container init: ",
        "/pods/",
        "/rootfs",
        '"',
        "a: ",
        'error mounting "',
        "/run/kubelet/",
        "/overlay/",
        'container create failed: time="',
        'container create failed: time="" level=error msg="\\',
        'container create failed: time="" level=error msg="a" b="c" ',
        'time="" level=error msg="a" b="c" d=',
        "unable to pull image or OCI artifact: pull image err: ",
    ):
        assert len(plain(f"{RUN}{piece * 100_000}")) < 20_000
    assert json.dumps(plain(f"{RUN}\udcff\n\0"))
