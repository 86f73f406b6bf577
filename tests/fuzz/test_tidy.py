"""tidy, built with the compiler's checks of memory and arithmetic, over folders that no program would make."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import strategies as st

from tests.fuzz.drawing import drawn
from tests.fuzz.test_payload_init import SOURCES, compile_checked

JOB: Final = 47001
GROUP: Final = 47002

NAMES = st.sampled_from([b"a", b"b", b".tidy-0", b".tidy-1", b"x" * 255, b"-", b"\n", b"\xff\xfe", b"%s%n", b"locked"])
PLACES = st.lists(NAMES, min_size=1, max_size=4)
TARGETS = st.sampled_from(
    [b"a", b"..", b"../..", b".", b"/", b"/etc/passwd", b"nowhere", b"a/b/../../..", b"/proc/self/environ", b"y" * 4000]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("folder"), PLACES, st.just(b"")),
        st.tuples(st.just("file"), PLACES, st.just(b"")),
        st.tuples(st.just("pipe"), PLACES, st.just(b"")),
        st.tuples(st.just("link"), PLACES, TARGETS),
        st.tuples(st.just("inside"), PLACES, NAMES),
        st.tuples(st.just("mode"), PLACES, st.integers(0, 0o7777).map(lambda mode: b"%d" % mode)),
        st.tuples(st.just("chain"), PLACES, st.integers(1, 400).map(lambda depth: b"%d" % depth)),
    ),
    max_size=15,
)


@pytest.fixture
def ground() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="k8spilot-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
def test_whatever_a_job_leaves_is_opened_and_removed_and_nothing_else(ground: Path) -> None:
    program = compile_checked(ground / "tidy", SOURCES / "tidy.c", SOURCES / "unlock.c", SOURCES / "measure.c")
    secret = ground / "secret"
    secret.write_text("s")
    secret.chmod(0o640)

    def tidy(command: str, *arguments: str | Path, user: int | None = None) -> None:
        said = subprocess.run(
            [program, command, *arguments],
            user=user,
            group=user,
            extra_groups=None if user is None else [GROUP],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        assert said.returncode == 0, (command, said.stderr)
        assert "Sanitizer" not in said.stderr, said.stderr
        assert "runtime error" not in said.stderr, said.stderr

    @drawn(60, steps=STEPS, is_root=st.booleans())
    def leave(steps: list[tuple[str, list[bytes], bytes]], is_root: bool) -> None:
        sandbox = Path(tempfile.mkdtemp(prefix="slot-", dir=ground))
        os.chown(sandbox, 0, GROUP)
        sandbox.chmod(0o2775)
        with _as_job():
            for what, place, more in steps:
                with suppress(OSError):
                    _make(what, os.path.join(bytes(sandbox), *place), bytes(sandbox), more)
        if is_root:
            tidy("unlock", str(JOB), sandbox)
        else:
            tidy("fence", sandbox, user=JOB)
        _look(bytes(sandbox), 0o400 if is_root else 0o040)
        if is_root:
            tidy("clean", str(JOB), "--", sandbox)
        else:
            tidy("clean", str(JOB), sandbox, "--", user=JOB)
        assert list(sandbox.iterdir()) == []
        assert (secret.read_text(), stat.S_IMODE(secret.stat().st_mode)) == ("s", 0o640)
        sandbox.rmdir()

    leave()


@contextmanager
def _as_job() -> Iterator[None]:
    """Have the job's rights, and no more."""
    groups = os.getgroups()
    os.setegid(JOB)
    os.setgroups([GROUP])
    os.seteuid(JOB)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _make(what: str, path: bytes, top: bytes, more: bytes) -> None:
    """Make something in the sandbox, as a job would have; nothing through a link, which leads into this machine."""
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
        return
    if what == "mode":
        if not os.path.islink(path):
            os.chmod(path, int(more))
    elif what == "folder":
        os.mkdir(path)
    elif what == "file":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        os.symlink(more, path)
    elif what == "inside":
        os.symlink(os.path.join(top, more), path)
    else:
        _chain(path, int(more))


def _chain(path: bytes, depth: int) -> None:
    """Make folders in folders, deeper than a path can be long."""
    os.mkdir(path)
    place = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(b"d" * 100, dir_fd=place)
        below = os.open(b"d" * 100, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)


def _look(top: bytes, bits: int) -> None:
    """All folders and files have the bits; links, where the group is to read, stay inside."""
    for folder, folders, files, _ in os.fwalk(top, follow_symlinks=False):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if len(path) >= 4096:
                return
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                assert status.st_mode & bits == bits, path
            elif stat.S_ISLNK(status.st_mode) and bits == 0o040:
                assert not os.readlink(path).startswith(b"/"), path
