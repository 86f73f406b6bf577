"""The machine's system, made from packages once per recipe: Debian 12 with systemd.

Its kernel is a later Debian's, and so is the emulator, which does not touch this computer's own packages.
"""

import gzip
import lzma
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import binaries, machine
from lab.errors import LabError
from lab.images import digest_of, machine_apt_options
from lab.progress import Progress
from lab.settings import Settings
from lab.shell import run

SUITE: Final = "bookworm"
"""Debian's suite: the one that the lab needs on users' machines."""
KERNEL_SUITE: Final = "trixie"
"""Debian's suite of the kernel. Its Linux 6.12 has Landlock, and a memory.peak that can be read (5.19 and later)."""
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"
EMULATOR_PACKAGE: Final = "qemu-system-x86"
"""Package of the emulator: qemu 10, of the kernel's suite. It starts a process in a third of the time of qemu 7.2."""
PACKAGES: Final = (
    *("systemd-sysv", "udev", "dbus", "libpam-systemd", "kmod", "openssh-server", "procps", "make", "git", "less"),
    *("e2fsprogs", "ca-certificates", "libc6-dev", *machine.PACKAGES),
)
"""Packages of the machine. They include those that `lab.machine` installs, since the machine reaches no mirror."""
TIMERS: Final = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "dpkg-db-backup.timer",
)
"""Timers that are disabled: they would use the processor when the machine has just started."""
RECIPE: Final = "1"
"""Raise this number to make the system anew."""
DISK_GIB: Final = 12
"""Size of the file system. The disk's file is sparse."""

_GUEST: Final = Path(__file__).parent / "guest"


@dataclass(frozen=True)
class System:
    """Files that a machine starts from. A running machine does not change them."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Image of the kernel."""
        return self.folder / "vmlinuz"

    @property
    def emulator(self) -> list[str | Path]:
        """Beginning of qemu's command line: the loader, libraries and firmware of its own Debian."""
        files = self.folder / "emulator/usr"
        loader = next(files.glob("lib/*/ld-linux-*.so.2"))
        firmware = [word for name in ("qemu", "seabios") for word in ("-L", files / "share" / name)]
        return [loader, "--library-path", loader.parent, files / "bin/qemu-system-x86_64", *firmware]

    @property
    def initrd(self) -> Path:
        """The first file system, in memory."""
        return self.folder / "initrd.gz"

    @property
    def disk(self) -> Path:
        """The disk: one ext4 file system, without partitions."""
        return self.folder / "disk.img"

    @property
    def key(self) -> Path:
        """The private key with which root may log in."""
        return self.folder / "key"


def ensure(settings: Settings, progress: Progress) -> System:
    """Return the system; make it if the cache has none of this recipe. Takes two minutes. Raises LabError."""
    recipe = [RECIPE, SUITE, KERNEL_SUITE, KERNEL_PACKAGE, EMULATOR_PACKAGE, *PACKAGES, *TIMERS, str(DISK_GIB)]
    name = digest_of(recipe, [_GUEST])
    folder = settings.cache / f"vm/system-{name}"
    if not folder.is_dir():
        with progress.step("make the machine's system from packages"):
            binaries.once(folder, lambda fresh: _make(settings, fresh))
    binaries.forget_others(folder)
    return System(folder)


def make_disk(source: Path, target: Path, gib: int) -> None:
    """Make a disk of `gib` GiB with the files below `source`: an ext4 file system."""
    with target.open("wb") as file:
        file.truncate(gib << 30)
    options = ["-q", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1"]
    run(["mke2fs", *options, "-d", source, target], what=f"make the disk {target.name}")


def _make(settings: Settings, fresh: Path) -> None:
    root, kernel = fresh / "root", fresh / "kernel"
    _bootstrap(settings, "extract", KERNEL_SUITE, (EMULATOR_PACKAGE,), fresh / "emulator")
    _bootstrap(settings, "minbase", SUITE, PACKAGES, root)
    _bootstrap(settings, "extract", KERNEL_SUITE, (KERNEL_PACKAGE,), kernel)
    image = next((kernel / "boot").glob("vmlinuz-*"))
    modules = kernel / "usr/lib/modules" / image.name.removeprefix("vmlinuz-")
    shutil.copytree(modules, root / "usr/lib/modules" / modules.name)
    shutil.copytree(_GUEST / "etc", root / "etc", dirs_exist_ok=True)
    (root / "luggage").mkdir()
    for command in (
        ["depmod", modules.name],
        ["systemctl", "enable", "systemd-networkd"],
        ["systemctl", "mask", *TIMERS],
    ):
        run(["chroot", root, *command], what=f"set up the machine's system ({command[0]})")
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", fresh / "key"], what="make a key for ssh")
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(fresh / "key.pub", root / "root/.ssh/authorized_keys")
    _make_initrd(root, modules, fresh)
    shutil.move(image, fresh / "vmlinuz")
    make_disk(root, fresh / "disk.img", DISK_GIB)
    shutil.rmtree(root)
    shutil.rmtree(kernel)


def _bootstrap(settings: Settings, variant: str, suite: str, packages: tuple[str, ...], target: Path) -> None:
    mirror = settings.mirror or machine.apt_mirror()
    options = [f"--variant={variant}", f"--include={','.join(packages)}"]
    options += [f"--aptopt={line}" for line in machine_apt_options()]
    what = f"make a Debian {suite} from the packages of {mirror}"
    run(["mmdebstrap", *options, suite, target, mirror], what=what, log=settings.cache / f"logs/vm-{suite}.log")


def _make_initrd(root: Path, modules: Path, target: Path) -> None:
    """Pack the first file system, which mounts the disk: busybox, a kernel module and the script `guest/init`."""
    folder = target / "initrd"
    for name in ("bin", "dev", "root"):
        (folder / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", folder / "bin")
    shutil.copy(_GUEST / "init", folder)
    (folder / "init").chmod(0o755)
    found = next(modules.rglob("virtio_blk.ko*"), None)
    if found is None:
        raise LabError(f"the kernel of Debian {KERNEL_SUITE} has no module virtio_blk")
    data = found.read_bytes()
    (folder / "virtio_blk.ko").write_bytes(lzma.decompress(data) if found.suffix == ".xz" else data)
    archive = target / "initrd.cpio"
    script = "find . | busybox cpio --quiet -o -H newc"
    run(["sh", "-c", f"{script} >{archive}"], what="pack the first file system", cwd=folder)
    (target / "initrd.gz").write_bytes(gzip.compress(archive.read_bytes(), 1))
    archive.unlink()
    shutil.rmtree(folder)
