"""The engine as a program."""

import os
import subprocess
import sys

import pytest

from k8spilot.cli.run import _prepared
from k8spilot.preflight.cluster import Cluster
from k8spilot.settings import Settings

PROGRAM = """
import os, sys
from k8spilot.engine import memory
memory.imported()
import aiohttp.connector
print(*sys.modules)
print(aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"])
print("libstdc++" in open("/proc/self/maps").read())
import bz2, lzma
print(os.environ.get("SSL_CERT_FILE"), os.environ.get("FROZENLIST_NO_EXTENSIONS"))
"""

BUFFERS = """
def heap():
    (line,) = [one for one in open("/proc/self/maps") if one.endswith("[heap]\\n")]
    first, end = line.split()[0].split("-")
    return int(end, 16) - int(first, 16)

def buffer():
    return bytearray(256 * 1024)

buffer()  # is freed at once, as that of a connection that has ended
before = heap()
kept = [buffer() for _ in range(20)]
print((heap() - before) / len(kept[0]))
"""


def run(**variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT")} | variables
    argv = [sys.executable, "-c", PROGRAM]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_engine_does_not_have_in_memory_what_only_others_need() -> None:
    modules, authorities, has_c_plus_plus, _ = run()
    assert "k8spilot.engine.app" in modules.split()
    others = {"pydantic", "kubernetes", "htcondor2", "typer", "yaml", "importlib.metadata", "bz2", "lzma"}
    assert not others & set(modules.split())
    assert authorities == "0"
    assert has_c_plus_plus == "False"


@pytest.mark.parametrize("given", [{}, {"SSL_CERT_FILE": "/site/authorities.pem"}], ids=["none", "the site's"])
def test_what_the_engine_starts_gets_the_authorities_that_the_container_has(given: dict[str, str]) -> None:
    assert run(**given)[-1].split() == [given.get("SSL_CERT_FILE", "None"), "None"]


def test_buffers_of_connections_that_come_and_go_leave_no_holes_in_the_engines_heap() -> None:
    settings = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))
    (engine,) = _prepared(settings, Cluster(), "").children
    argv = [sys.executable, "-c", BUFFERS]
    said = subprocess.run(argv, env=engine.env, capture_output=True, text=True, check=True).stdout
    assert float(said) < 1
