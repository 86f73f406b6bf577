"""tidy, as the jobs' own user, over what a job left."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulator.programs import CHECKOUT, Programs, build_tidy

JOB, GROUP = 47001, 47002


@pytest.fixture
def tidy(programs: Programs) -> Path:
    for folder in (programs.tidy, *programs.tidy.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    return programs.tidy


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    for folder in tmp_path.parents[:-2]:
        folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "slot"
    folder.mkdir()
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2775)
    return folder


def as_job(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, user=JOB, group=JOB, extra_groups=[GROUP], text=True, capture_output=True, check=True
    )


def test_what_was_locked_is_open_to_the_group(tidy: Path, sandbox: Path) -> None:
    as_job("sh", "-c", f"cd {sandbox}; mkdir -m 700 -p a/b; echo x >a/b/f; chmod 000 a/b/f a/b; chmod 100 a")
    as_job(tidy, "open", sandbox)
    for name, mode in (("a", 0o770), ("a/b", 0o770), ("a/b/f", 0o040)):
        status = (sandbox / name).lstat()
        assert (status.st_gid, status.st_mode & mode) == (GROUP, mode), name


LINKS = """
cd {sandbox}; mkdir -p a/b; echo x >a/b/f
ln -s a/b/f fine; ln -s {sandbox}/a/b a/by-path; ln -s ../.. a/b/up; ln -s nowhere dangling
ln -s {secret} out; ln -s ../secret out-too; ln -s a/b/up/../secret out-by-link; ln -s /proc/self/environ magic
ln -s {sandbox}/../secret sneaks; mkdir locked; ln -s locked/../../secret through; chmod 000 locked
"""


def test_links_that_lead_out_are_removed(tidy: Path, sandbox: Path) -> None:
    as_job("sh", "-c", LINKS.format(sandbox=sandbox, secret=sandbox.parent / "secret"))
    said = as_job(tidy, "fence", sandbox).stderr
    assert {path.name for path in sandbox.iterdir()} == {"a", "fine", "dangling", "locked"}
    assert (sandbox / "a/by-path/f").read_text() == "x\n"
    assert (sandbox / "a/by-path").readlink() == Path("../a/b")
    assert "removed the link" in said


@pytest.mark.slow
def test_all_is_removed_however_deep_and_locked(tidy: Path, sandbox: Path) -> None:
    deep = (
        "i=0; while [ $i -lt 600 ]; do mkdir dddddddd; cd dddddddd; i=$((i + 1)); done; touch f; ln -s / l; chmod 0 ."
    )
    as_job("sh", "-c", f"cd {sandbox}; mkdir x; touch x/f; chmod 000 x; {deep}")
    as_job(tidy, "remove", sandbox, sandbox / "absent")
    assert list(sandbox.iterdir()) == []
    assert (sandbox.parent / "secret").exists()


def test_what_is_others_stays_in_shared_places(tidy: Path, sandbox: Path) -> None:
    (sandbox / "others").mkdir()
    as_job("sh", "-c", f"cd {sandbox}; mkdir -m 000 own; touch file")
    as_job(tidy, "clean", str(JOB), "--", sandbox)
    assert [path.name for path in sandbox.iterdir()] == ["others"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_an_image_has_in_a_folders_place_is_told(tidy: Path, sandbox: Path, kind: str) -> None:
    as_job("sh", "-c", f"cd {sandbox}; mkdir beside; touch beside/f; ln -s beside link; touch file")
    said = subprocess.run([tidy, "remove", sandbox / kind], user=JOB, group=JOB, capture_output=True, check=False)
    assert (said.returncode, said.stderr.decode()) == (3, str(sandbox / kind))
    assert (sandbox / "beside/f").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="removes as root what another user has")
@pytest.mark.parametrize("look", [1, 2])
def test_root_changes_no_file_that_takes_a_folders_place(tmp_path: Path, look: int) -> None:
    """A process of the job's user that lives puts a link there after tidy has looked, and before it acts."""
    racing, folder, victim = tmp_path / "tidy", tmp_path / "shared", tmp_path / "victim"
    build_tidy(racing, "-Dfstatat=looks_and_swaps", CHECKOUT / "tests/unit/swapping.c")
    (folder / "swapped").mkdir(parents=True)
    os.chown(folder / "swapped", JOB, JOB)
    victim.mkdir()
    (victim / "file").touch()
    victim.chmod(0o755)
    variables = {"SWAPPED_FOR": str(victim), "LOOK": str(look)}
    said = subprocess.run([racing, "clean", str(JOB), "--", folder], env=variables, stderr=-1, check=False)
    assert b"swapped" in said.stderr
    assert (victim.stat().st_mode & 0o777, list(victim.iterdir())) == (0o755, [victim / "file"])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("command", ["remove {0}", "clean 47001 -- {0}", "unlock 47001 {0}", "open {0}"])
def test_what_is_mounted_in_a_folder_is_not_entered(tidy: Path, sandbox: Path, command: str) -> None:
    place = sandbox / "mounted"
    prepare = (
        f"mkdir {place}; mount -t tmpfs none {place}; echo x >{place}/f; chmod 600 {place}/f; chown -R {JOB} {place}"
    )
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{prepare}; {tidy} {command.format(sandbox)}; stat -c %a-%s {place}/f"],
        text=True,
        capture_output=True,
        check=True,
    )
    assert said.stdout == "600-2\n"
    assert re.search("mounted: .*[Cc]ross-device", said.stderr)  # musl's words, or glibc's


def test_files_and_folders_are_removed_by_name(tidy: Path, sandbox: Path) -> None:
    as_job("sh", "-c", f"cd {sandbox}; mkdir -p a/b; touch f; chmod 000 a/b a; ln -s {sandbox.parent} link; touch kept")
    as_job(tidy, "delete", *(sandbox / name for name in ("a", "f", "link", "absent")))
    assert [path.name for path in sandbox.iterdir()] == ["kept"]
    assert (sandbox.parent / "secret").exists()


@pytest.mark.parametrize("user", ["-1", "4294967295", "4294967296", "", "nobody", "7x"])
def test_no_other_text_is_taken_for_a_user(tidy: Path, sandbox: Path, user: str) -> None:
    (sandbox / "file").touch()
    said = subprocess.run([tidy, "clean", user, "--", sandbox], capture_output=True, check=False)
    assert (said.returncode, list(sandbox.iterdir())) == (64, [sandbox / "file"])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes the jobs' user")
def test_a_job_cannot_exhaust_the_pilots_memory_by_its_folders(tidy: Path) -> None:
    """The names of those that wait are in memory: of these, 50 MiB."""
    with TemporaryDirectory(dir="/dev/shm") as place:
        sandbox = Path(place, "slot")
        for folder in (sandbox, sandbox / "wide"):
            folder.mkdir()
            os.chown(folder, JOB, JOB)
        Path(place).chmod(0o755)
        for number in range(200_000):
            os.mkdir(f"{sandbox}/wide/{number:0240}")  # noqa: PTH102 -- two hundred thousand times
        unlock = subprocess.run([tidy, "unlock", str(JOB), sandbox], text=True, capture_output=True, check=False)
        subprocess.run([tidy, "delete", sandbox], check=True)
        assert (unlock.returncode, "memory" in unlock.stderr) == (1, True)
        assert list(Path(place).iterdir()) == []


def measured(tidy: Path, folder: Path, since: int = 0) -> tuple[int, str]:
    said = subprocess.run([tidy, "measure", str(since), "20", folder], text=True, capture_output=True, check=True)
    count, word = said.stdout.split()
    return int(count), word


def test_measured_is_what_the_disk_has_whatever_the_size_says(tidy: Path, sandbox: Path) -> None:
    assert measured(tidy, sandbox) == (0, "complete")
    with (sandbox / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.write(b"x" * 1_000_000)
    (sandbox / "link").symlink_to("/usr")
    found, _ = measured(tidy, sandbox)
    assert 1_000_000 <= found < 1_100_000


def test_measured_from_a_time_on_is_only_what_was_changed_since(tidy: Path, sandbox: Path) -> None:
    (sandbox / "old").write_bytes(b"x" * 1_000_000)
    os.utime(sandbox / "old", (1, 1))  # a job can set this time, and not that of the change
    now = int((sandbox / "old").stat().st_ctime)
    assert measured(tidy, sandbox, now)[0] >= 1_000_000
    assert measured(tidy, sandbox, now + 10) == (0, "complete")


def test_a_mount_in_a_folder_is_not_measured(tidy: Path, sandbox: Path) -> None:
    script = (
        f"mount -t tmpfs none {sandbox}/m && head -c 1000000 /dev/zero >{sandbox}/m/f && {tidy} measure 0 9 {sandbox}"
    )
    (sandbox / "m").mkdir()
    said = subprocess.run(["unshare", "--mount", "sh", "-c", script], text=True, capture_output=True, check=True)
    assert int(said.stdout.split()[0]) < 100_000


def test_beyond_the_room_for_files_with_several_names_each_name_counts(tmp_path: Path, sandbox: Path) -> None:
    build_tidy(tmp_path / "tidy", "-DMOST_LINKED=4UL")
    for number in range(20):
        (sandbox / f"a{number}").write_bytes(b"x" * 100_000)
        os.link(sandbox / f"a{number}", sandbox / f"b{number}")
    one = (sandbox / "a0").stat().st_blocks * 512
    found, word = measured(tmp_path / "tidy", sandbox)
    assert (found, word) == (one * (4 + 2 * 16), "complete")


@contextmanager
def still_there(tidy: Path, folder: Path) -> Iterator[int]:
    """The process of a measurement that is done, and waits for room in the pipe for its figures."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    os.set_blocking(writing, True)
    usual = ["nice", "-n", str(-os.getpriority(os.PRIO_PROCESS, 0))]
    measuring = subprocess.Popen([*usual, tidy, "measure", "0", "20", folder], stdout=writing)
    try:
        deadline = time.monotonic() + 20
        while "pipe_write" not in Path(f"/proc/{measuring.pid}/wchan").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield measuring.pid
    finally:
        measuring.kill()
        measuring.wait()
        os.close(reading)
        os.close(writing)


def test_a_measurement_makes_way_for_the_pilots_own_programs(tidy: Path, sandbox: Path) -> None:
    with still_there(tidy, sandbox) as process:
        assert os.getpriority(os.PRIO_PROCESS, process) == 10


@pytest.mark.slow
def test_a_measurement_of_a_deep_tree_takes_little_memory(tidy: Path) -> None:
    with TemporaryDirectory(dir="/dev/shm") as place:
        folder = os.open(place, os.O_RDONLY)
        for _ in range(16_000):
            os.mkdir("d", dir_fd=folder)
            outer, folder = folder, os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(outer)
        os.close(folder)
        try:
            with still_there(tidy, Path(place)) as process:
                status = Path(f"/proc/{process}/status").read_text()
        finally:
            subprocess.run([tidy, "remove", place], check=True)
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert peak is not None
    assert int(peak[1]) < 30 * 1024
