"""A search for tokens, keys and passwords, and what can be done without one."""

import os
import re
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from .tools import EXCHANGE, SECRET, attack, files_in, has_secret, processes, strangers, text


@attack
def secrets() -> list[str]:
    """Search files, environments, command lines, mounts and shared memory for tokens, keys and passwords."""
    gained = []
    for folder in ("/var/run", "/run", "/etc", EXCHANGE, "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue",
                   "/var/lib/condor", "/var/log", "/root", "/home", os.environ["_CONDOR_SCRATCH_DIR"]):  # fmt: skip
        gained += [path for path in files_in(folder) if has_secret(path)]
    for pid in processes():
        for file in ("cmdline", "environ"):
            with suppress(OSError):
                if SECRET.search(Path(f"/proc/{pid}/{file}").read_bytes()):
                    gained.append(f"{file} of {pid}")
    mounts = Path("/proc/self/mountinfo").read_text()
    gained += [line for line in mounts.splitlines() if re.search("secret|token|docker.sock|serviceaccount", line)]
    gained += [name for name in os.environ if re.search("TOKEN|SECRET|PASSW|KUBE", name)]
    return gained


@attack
def command_lines() -> list[str]:
    """All of the pod's command lines can be seen: none names a secret, or another job's user."""
    gained = []
    for pid in strangers():
        line = text(pid, "cmdline").replace("\0", " ")
        if re.search(r"eyJ|passw|bearer|--token|credential", line, re.IGNORECASE):
            gained.append(line)
    return gained


@attack
def kubernetes_api() -> list[str]:
    """Without a token: nothing that the pod could be changed by."""
    address = os.environ.get("ATTACK_API", "")
    assert address, "the API server's address is not given, so this shows nothing"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    gained = []
    for path in ("/api/v1/namespaces/pilots/pods", "/api/v1/namespaces/pilots/secrets", "/api/v1/nodes"):
        try:
            with urllib.request.urlopen(f"{address}{path}", context=context, timeout=5) as answer:
                gained.append(f"{path}: {answer.status}")
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403), error
        except OSError as error:
            assert isinstance(getattr(error, "reason", error), TimeoutError | ConnectionError), error
    return gained
