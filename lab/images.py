"""Build the lab's images and push them to the registry. Unchanged images are not built or pushed again."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import machine, registry
from lab.errors import LabError
from lab.progress import Progress
from lab.settings import CHECKOUT, DEBIAN_SUITE, HERE, HTCONDOR, HTCONDOR_SUITES, Settings
from lab.shell import run

HELLO = "hello:latest"
BUSYBOX = "busybox:latest"
RECIPE = "1"
"""Raise this number to rebuild all images."""

APT_OPTIONS = ('Acquire::Check-Valid-Until "false"', 'Acquire::Languages "none"')
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
PROJECT_INPUTS = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements.txt",
    "requirements-build.txt",
    "requirements-provisioner.txt",
    "src",
    "manifests",
    "components",
    "overlays",
)
APT_OPTIONS_OF_MACHINE = ("Acquire::http::Proxy", "Acquire::https::", "Acquire::Check-")


class Images:
    """Builder of the images: buildah with a storage of the lab's own, and one registry."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._address = settings.registry_address
        self._storage = settings.cache / "buildah"

    def base(self, suite: str = DEBIAN_SUITE) -> str:
        """Ensure the base image of a Debian suite; return its name in the builder's storage."""
        key = self._base_key(suite)
        name = "debian" if suite == DEBIAN_SUITE else f"debian-{suite}"  # only the latest image of a name is kept
        local = f"localhost/k8spilot-lab/{name}:{key}"
        if self._in_storage(local) and registry.holds(self._address, "debian", key):
            return local
        if not self._in_storage(local):
            with self._progress.step(f"make the base image, Debian {suite}"):
                self._bootstrap(local, suite)
        self._push(local, ("debian", key), f"debian:{suite}")
        return local

    def pause(self) -> str:
        """Ensure the image of the first process of every pod; return its reference."""
        return self._static("pause", 'ENTRYPOINT ["/pause"]')

    def hello(self) -> str:
        """Ensure the image with nothing but one small static program; return its reference."""
        return self._static("hello", 'CMD ["/hello"]')

    def busybox(self) -> str:
        """Ensure the image with nothing but a static busybox and its links; return its reference."""
        program = Path("/bin/busybox")
        key = digest_of(["busybox"], [program])
        if not registry.holds(self._address, "busybox", key):
            with tempfile.TemporaryDirectory() as folder:
                tools = Path(folder) / "root/bin"
                tools.mkdir(parents=True)
                shutil.copy(program, tools / "busybox")
                for name in run([program, "--list"], what="ask busybox for its tools").split():
                    if name != "busybox":
                        (tools / name).symlink_to("busybox")
                text = 'FROM scratch\nCOPY root /\nENV PATH=/bin\nCMD ["sh"]\n'
                local = f"localhost/k8spilot-lab/busybox:{key}"
                self._build(local, text, Path(folder), "the image busybox")
                self._push(local, ("busybox", key), BUSYBOX)
        return f"{self._address}/busybox:{key}"

    def htcondor(self) -> str:
        """Ensure the image of the pool: the project's image without the project. Return its reference."""
        if self._settings.htcondor != HTCONDOR:
            return self._other_htcondor()
        dockerfile = CHECKOUT / "Dockerfile"
        # Only the stage of its own: the pool is shared by checkouts, and must not change with the pilot of one of them.
        key = digest_of(
            [self._base_key(), dockerfile.read_text().partition(" AS htcondor\n")[2].partition("\nFROM ")[0]]
        )
        if not registry.holds(self._address, "htcondor", key):
            local = f"localhost/k8spilot-lab/htcondor:{key}"
            with self._progress.step("build the image with HTCondor"):
                self._build(local, dockerfile, CHECKOUT, "the image with HTCondor", target="htcondor")
            self._push(local, ("htcondor", key))
        return f"{self._address}/htcondor:{key}"

    def _other_htcondor(self) -> str:
        """Ensure the image of a pool with another HTCondor, the package of a Debian suite; return its reference."""
        suite, folder = HTCONDOR_SUITES[self._settings.htcondor], HERE / "images/htcondor"
        key, name = digest_of([self._base_key(suite)], [folder]), f"htcondor-{self._settings.htcondor}"
        if not registry.holds(self._address, name, key):
            local = f"localhost/k8spilot-lab/{name}:{key}"
            with self._progress.step(f"build the image with HTCondor {self._settings.htcondor}"):
                self._build(local, folder / "Dockerfile", folder, f"the image {name}", suite=suite)
            self._push(local, (name, key))
        return f"{self._address}/{name}:{key}"

    def project(self) -> str:
        """Ensure the project's image of this checkout; return its reference."""
        inputs = [CHECKOUT / name for name in PROJECT_INPUTS]
        absent = [path.name for path in inputs if not path.exists()]
        if absent:
            raise LabError(f"{CHECKOUT} has no {absent[0]}, which the project's image is made of")
        key = digest_of([self._base_key()], inputs)
        if not registry.holds(self._address, "k8spilot", key):
            local = f"localhost/k8spilot-lab/k8spilot:{key}"
            with self._progress.step("build the project's image"):
                self._build(local, CHECKOUT / "Dockerfile", CHECKOUT, "the project's image")
            with self._progress.step("push the project's image"):
                self._push(local, ("k8spilot", key), "k8spilot:latest")
        return f"{self._address}/k8spilot:{key}"

    def provisioner(self) -> str:
        """Ensure the provisioner's image of this checkout; return its reference."""
        key = digest_of([self._base_key()], [CHECKOUT / name for name in PROJECT_INPUTS])
        name = "k8spilot-provisioner"
        found, local = f"{self._address}/{name}:{key}", f"localhost/k8spilot-lab/{name}:{key}"
        if registry.holds(self._address, name, key):
            return found
        with self._alone():
            if not registry.holds(self._address, name, key):
                with self._progress.step("build the provisioner's image"):
                    build = (CHECKOUT / "Dockerfile", CHECKOUT, "the provisioner's image")
                    self._build(local, *build, target="provisioner")
                with self._progress.step("push the provisioner's image"):
                    self._push(local, (name, key), f"{name}:latest")
        return found

    def build_apart(self, tag: str, epoch: int, *, cached: bool) -> str:
        """Build the project's image, pushed nowhere, with one time for all its files; return its name here."""
        local = f"localhost/k8spilot-lab/supply:{tag}"
        with tempfile.TemporaryDirectory() as folder:
            options = ["--layers" if cached else "--no-cache", "--timestamp", str(epoch)]
            options += ["--build-arg", f"BASE={self.base()}", "--build-arg", f"SOURCE_DATE_EPOCH={epoch}"]
            options += ["--tag", local, *machine_volumes(Path(folder))]
            log = self._settings.cache / f"logs/supply-{tag}.log"
            with self._progress.step(f"build the project's image ({tag})"):
                command = self._buildah("bud", *options, CHECKOUT)
                run(command, what="build the project's image", log=log, env=self._environment())
        return local

    @contextmanager
    def mounted(self, local: str) -> Iterator[Path]:
        """Mount an image of the builder's storage; give the folder with its files."""
        environment = self._environment()
        container = run(self._buildah("from", "--pull-never", local), what=f"open {local}", env=environment).strip()
        try:
            yield Path(run(self._buildah("mount", container), what=f"mount {local}", env=environment).strip())
        finally:
            run(self._buildah("rm", container), what=f"close {local}", env=environment)

    def remove_apart(self) -> None:
        """Remove the images of `build_apart`; a cached build still finds its layers."""
        names = "localhost/k8spilot-lab/supply"
        listed = run(self._buildah("images", "--format", "{{.Name}}:{{.Tag}}"), what="list", env=self._environment())
        if found := [name for name in listed.split() if name.rpartition(":")[0] == names]:
            run(self._buildah("rmi", *found), what="remove images", env=self._environment())

    def from_source(self, name: str, source: str | Path) -> str:
        """Build and push an image from a Dockerfile's text, or a folder that holds one; return its reference.

        `name` is `name` or `name:tag`; without a tag, the tag is a digest of the image's sources.
        """
        inputs = [source] if isinstance(source, Path) else []
        texts = [source] if isinstance(source, str) else []
        key = digest_of([self._base_key(), *texts], inputs)
        repository, _, tag = name.partition(":")
        if not registry.holds(self._address, repository, f"{tag}{'-' if tag else ''}{key}"):
            local = f"localhost/k8spilot-lab/{repository}:{key}"
            with self._alone(), tempfile.TemporaryDirectory() as folder:
                context = source if isinstance(source, Path) else Path(folder)
                dockerfile = source / "Dockerfile" if isinstance(source, Path) else source
                self._build(local, dockerfile, context, f"the image {name}")
                self._push(local, (repository, f"{tag}{'-' if tag else ''}{key}"), *([name] if tag else []))
        return f"{self._address}/{name if tag else f'{repository}:{key}'}"

    def _base_key(self, suite: str = DEBIAN_SUITE) -> str:
        return digest_of([suite, *APT_OPTIONS, *LEFT_OUT, self._settings.mirror or ""])

    def _static(self, name: str, last_line: str) -> str:
        source = HERE / f"images/{name}/{name}.c"
        key = digest_of([last_line], [source])
        if not registry.holds(self._address, name, key):
            with tempfile.TemporaryDirectory() as folder:
                program = Path(folder) / name
                options = ["-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror"]
                run(["musl-gcc", *options, "-o", program, source], what=f"compile {source}")
                local = f"localhost/k8spilot-lab/{name}:{key}"
                text = f"FROM scratch\nCOPY {name} /{name}\n{last_line}\n"
                self._build(local, text, Path(folder), f"the image {name}")
                self._push(local, (name, key), f"{name}:latest")
        return f"{self._address}/{name}:{key}"

    def _bootstrap(self, local: str, suite: str) -> None:
        mirror = self._settings.mirror or machine.apt_mirror()
        options = [f"--aptopt={line}" for line in (*APT_OPTIONS, *machine_apt_options())]
        # The image must not keep the apt settings of this machine.
        forget = "--customize-hook=rm -f $1/etc/apt/apt.conf.d/99mmdebstrap $1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
        with tempfile.TemporaryDirectory(dir=self._settings.cache) as folder:
            archive = Path(folder) / "base.tar"
            paths = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
            how = ["--variant=minbase", *options, *paths, forget]
            log = self._settings.cache / "logs/base.log"
            command: list[str | Path] = ["mmdebstrap", *how, suite, archive, mirror]
            run(command, what=f"make a Debian {suite} from the packages of {mirror}", log=log)
            text = 'FROM scratch\nADD base.tar /\nCMD ["bash"]\n'
            self._build(local, text, Path(folder), "the base image")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock from build to push. Otherwise another process could remove an image of the same name in between."""
        with (self._settings.cache / "images.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _in_storage(self, local: str) -> bool:
        command = self._buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", local)
        environment = {**os.environ, **self._environment()}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0

    def _build(
        self,
        local: str,
        dockerfile: str | Path,
        context: Path,
        title: str,
        *,
        target: str | None = None,
        suite: str = DEBIAN_SUITE,
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(dockerfile, str):
                text, dockerfile = dockerfile, Path(folder) / "Dockerfile"
                dockerfile.write_text(text)
            options: list[str | Path] = ["--layers", "--jobs", "2", "--file", dockerfile, "--tag", local]
            if "FROM scratch" not in dockerfile.read_text():
                options += ["--build-arg", f"BASE={self.base(suite)}", *machine_volumes(Path(folder))]
            if target:
                options += ["--target", target]
            log = self._settings.cache / f"logs/{local.rsplit('/', maxsplit=1)[-1].split(':', maxsplit=1)[0]}.log"
            run(self._buildah("bud", *options, context), what=f"build {title}", log=log, env=self._environment())
        self._forget_others(local)

    def _forget_others(self, local: str) -> None:
        """Remove older images of the same name from the builder's storage; their common layers stay."""
        name, _, _ = local.rpartition(":")
        listed = run(
            self._buildah("images", "--format", "{{.Name}}:{{.Tag}}"), what="list images", env=self._environment()
        )
        old = [image for image in listed.split() if image.startswith(f"{name}:") and image != local]
        if old:
            run(self._buildah("rmi", *old), what="remove older images", env=self._environment())

    def _push(self, local: str, exact: tuple[str, str], *friendly: str) -> None:
        # Not compressed: the registry is on this disk, and compressing takes longer than anything else here.
        options = ["--tls-verify=false", "--disable-compression", "--quiet"]
        for name in (*friendly, f"{exact[0]}:{exact[1]}"):  # the exact name last: it says that all is there
            command = self._buildah("push", *options, local, f"docker://{self._address}/{name}")
            run(command, what=f"push {name} to {self._address}", env=self._environment())

    def _buildah(self, verb: str, *arguments: str | Path) -> list[str | Path]:
        return ["buildah", "--root", self._storage / "root", "--runroot", self._storage / "run", verb, *arguments]

    def _environment(self) -> dict[str, str]:
        return {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": storage_driver(self._settings.cache)}


def digest_of(texts: Iterable[str], paths: Iterable[Path] = ()) -> str:
    """Name texts and the contents of files and folders in 16 hexadecimal digits."""
    digest = hashlib.sha256(RECIPE.encode())
    for text in texts:
        digest.update(text.encode() + b"\0")
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                name = file.relative_to(path.parent)
                digest.update(f"{name}\0{file.stat().st_mode & 0o111:o}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def storage_driver(folder: Path) -> str:
    """Return buildah's storage driver for layers below `folder`: overlay where it works, since it is far faster."""
    kind = run(["stat", "--file-system", "--format=%T", folder], what=f"look at the file system of {folder}").strip()
    known = Path("/proc/filesystems").read_text().split()
    return "vfs" if kind == "overlayfs" or "overlay" not in known else "overlay"


def machine_apt_options() -> list[str]:
    """Return options with which apt in a build reaches this machine's mirror: proxies, authorities, old lists."""
    dumped = run(["apt-config", "dump"], what="read apt's configuration")
    return [line.rstrip(";") for line in dumped.splitlines() if line.startswith(APT_OPTIONS_OF_MACHINE)]


def machine_volumes(folder: Path) -> list[str]:
    """Return buildah options that lend a build this machine's way to the package registries.

    Configuration of pip and apt and the machine's certificate authorities are mounted: none enters the image.
    """
    authorities = Path("/run/k8spilot-build/authorities.pem")
    bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    volumes = []
    pip = ["[global]"]
    listed = run([sys.executable, "-m", "pip", "config", "list"], what="read pip's configuration")
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout"}:
            pip.append(f"{key.removeprefix('default-')} = {value.strip(chr(39))}")
    apt = [f"{line};" for line in (*APT_OPTIONS, *machine_apt_options()) if "CAInfo" not in line]
    if Path(bundle).is_file():
        volumes.append(f"--volume={Path(bundle).resolve()}:{authorities}:ro")
        pip.append(f"cert = {authorities}")
        apt.append(f'Acquire::https::CAInfo "{authorities}";')
    for name, lines, target in (("pip", pip, "/etc/pip.conf"), ("apt", apt, "/etc/apt/apt.conf.d/99-machine")):
        (folder / name).write_text("\n".join(lines) + "\n")
        volumes.append(f"--volume={folder / name}:{target}:ro")
    return volumes
