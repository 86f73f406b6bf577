"""`k8spilot manifests`: the kustomize base, the components and the example overlays of this version, as a tar archive.

An operator can write an overlay without a checkout, on the base that belongs to the version of the image.
"""

import tarfile
from pathlib import Path
from typing import IO, Final

import k8spilot
from k8spilot.common.errors import SettingsError

FOLDERS: Final = ("manifests", "components", "overlays")
_TOP: Final = "k8spilot"


def root() -> Path:
    """Return the folder that has the manifests: in the installed package, or in a checkout.

    Raises:
        SettingsError: neither has them.
    """
    package = Path(k8spilot.__file__).parent
    for candidate in (package / "kustomize", package.parents[1]):
        if all((candidate / name).is_dir() for name in FOLDERS):
            return candidate
    raise SettingsError("this installation of k8spilot has no manifests; use k8spilot's image, or a checkout")


def write(output: IO[bytes]) -> None:
    """Write the archive. All its files belong to root and have the same time, so that it is always the same."""
    source = root()
    with tarfile.open(fileobj=output, mode="w|") as archive:
        for folder in FOLDERS:
            for path in sorted((source / folder).rglob("*.yaml")):
                info = tarfile.TarInfo(f"{_TOP}/{path.relative_to(source)}")
                info.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(info, file)
