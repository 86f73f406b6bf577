"""The image's bill of materials, and whether its build is reproducible: python -m lab.supply sbom, reproducible."""

import argparse
import hashlib
import json
import os
import stat
import sys
import uuid
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from lab.command_line import exit_code
from lab.images import Images
from lab.progress import Progress
from lab.settings import CHECKOUT, DEBIAN_SUITE, Settings

EPOCH = 1_767_225_600
"""Time stamp of all files in an image that is built for a comparison: 2026-01-01."""
BUILD = CHECKOUT / "build"


def sbom(images: Images) -> Path:
    """Write the bill of materials of the image as CycloneDX JSON, the same text for the same image. Return its path."""
    image = images.build_apart("sbom", EPOCH, cached=True)
    with images.mounted(image) as root:
        found = [*debian(root), *python(root), *own(root)]
    bom = Bom(components=found, serial_number=uuid.UUID(int=0))
    bom.metadata.component = Component(name="k8spilot", type=ComponentType.CONTAINER, bom_ref="k8spilot")
    bom.register_dependency(bom.metadata.component, found)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    document["metadata"].pop("timestamp", None)
    digest = hashlib.sha256(json.dumps(document["components"]).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    BUILD.mkdir(exist_ok=True)
    target = BUILD / "sbom.cdx.json"
    target.write_text(json.dumps(document, indent=1) + "\n")
    return target


def debian(root: Path) -> Iterator[Component]:
    """Give the packages that dpkg has installed below `root`."""
    for block in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        entry = HeaderParser().parsestr(block)
        if entry["Status"] == "install ok installed":
            where = {"arch": entry["Architecture"], "distro": DEBIAN_SUITE}
            yield _component("deb", entry["Package"], entry["Version"], namespace="debian", qualifiers=where)


def python(root: Path) -> Iterator[Component]:
    """Give the distributions in the project's own environment."""
    for path in sorted((root / "opt/k8spilot/lib").glob("python3*/site-packages/*.dist-info/METADATA")):
        entry = HeaderParser().parsestr(path.read_text())
        yield _component("pypi", entry["Name"].lower().replace("_", "-"), entry["Version"])


def own(root: Path) -> Iterator[Component]:
    """Give the programs that were compiled for the image."""
    for program in sorted((root / "opt/k8spilot/libexec").iterdir()):
        content = hashlib.sha256(program.read_bytes()).hexdigest()
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=content)]
        yield Component(name=program.name, type=ComponentType.APPLICATION, bom_ref=program.name, hashes=hashes)


def _component(kind: str, name: str, version: str, **more: Any) -> Component:
    address = PackageURL(type=kind, name=name, version=version, **more)
    return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=address, bom_ref=address.to_string())


def differences(images: Images) -> dict[str, list[str]]:
    """Build the image twice without a cache; return the files that differ, each with its differences."""
    first, second = (images.build_apart(name, EPOCH, cached=False) for name in ("first", "second"))
    with images.mounted(first) as one, images.mounted(second) as other:
        return compared(one, other)


def compared(one: Path, other: Path) -> dict[str, list[str]]:
    """Return the differences between two trees, by path."""
    ours, theirs = dict(_tree(one)), dict(_tree(other))
    found: dict[str, list[str]] = {}
    for path in sorted(ours.keys() | theirs.keys()):
        if path not in ours or path not in theirs:
            found[path] = ["is in one alone"]
        elif ours[path] != theirs[path]:
            found[path] = [what for what in ours[path] if ours[path][what] != theirs[path].get(what)]
    return found


def _tree(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for folder, folders, files in os.walk(root):
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            status = path.lstat()
            facts: dict[str, Any] = {"mode": status.st_mode, "owner": (status.st_uid, status.st_gid)}
            facts["time"] = int(status.st_mtime)
            if stat.S_ISREG(status.st_mode):
                facts["content"] = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(status.st_mode):
                facts["target"] = str(path.readlink())
            yield str(path.relative_to(root)), facts


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.supply", description=__doc__)
    parser.add_argument("command", choices=("sbom", "reproducible"))
    command = parser.parse_args(arguments).command
    return exit_code("lab", lambda: _run(command))


def _run(command: str) -> int:
    settings = Settings.from_environment()
    with Progress(settings.cache / "durations.json") as progress:
        images = Images(settings, progress)
        try:
            if command == "sbom":
                print(sbom(images))
                return 0
            found = differences(images)
        finally:
            images.remove_apart()
    for path, what in found.items():
        print(f"/{path}: {', '.join(what)}")
    print(f"{len(found)} files differ")
    return 1 if found else 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
