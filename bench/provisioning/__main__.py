"""Run the simulation: `python -m bench.provisioning`. It needs no lab, and some two minutes of one core."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import say
from bench.provisioning import table
from bench.provisioning.contestants import CONTESTANTS
from bench.provisioning.curves import CURVES
from bench.provisioning.measures import Measures, mean
from bench.provisioning.world import World
from lab import pilot_picture
from lab.pilot_samples import Sample

FOLDER = Path("build")
DRAWN, PANELS = "day", ("k8spilot", "PRP")
"""The curve of the picture, and the contestants in it."""


@dataclass(frozen=True)
class Chosen:
    """The options of the command line."""

    curves: Sequence[str]
    contestants: Sequence[str]
    seeds: Sequence[int]


def chosen(words: Sequence[str] | None = None) -> Chosen:
    """Read the command line; an error of it ends the program."""
    parser = argparse.ArgumentParser(prog="bench.provisioning", description=__doc__)
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--seed", type=int, default=1, help="seed of the first drawing of each curve")
    parser.add_argument("--drawings", type=int, default=3, help="drawings of each curve; the figures are their means")
    arguments = parser.parse_args(words)
    return Chosen(
        arguments.curves, arguments.contestants, range(arguments.seed, arguments.seed + max(arguments.drawings, 1))
    )


def main() -> int:
    """Simulate, print the table, and write the figures and the picture."""
    wanted = chosen()
    began = time.monotonic()
    words, found = {}, {}
    samples: dict[str, Sequence[Sample]] = {}
    for curve in wanted.curves:
        words[curve] = CURVES[curve](wanted.seeds[0]).words
        found[curve] = {
            name: mean([_measure(curve, name, seed, samples) for seed in wanted.seeds]) for name in wanted.contestants
        }
    for line in table.lines(found, words):
        say(line)
    seconds = round(time.monotonic() - began)
    target = FOLDER / "provisioning.json"
    table.write(target, found, words, {"seeds": list(wanted.seeds), "seconds": seconds})
    if samples:
        pilot_picture.draw(FOLDER / "provisioning.svg", words[DRAWN], {name: samples[name] for name in PANELS})
    say(f"--- {seconds} s; the figures are in {target}")
    return 0


def _measure(curve: str, name: str, seed: int, samples: dict[str, Sequence[Sample]]) -> Measures:
    """Simulate once; keep what the picture needs, of the first drawing."""
    result = World(CURVES[curve](seed), CONTESTANTS[name].make(), seed).run()
    if curve == DRAWN and name in PANELS:
        samples.setdefault(name, result.samples)
    return Measures.of(result)


if __name__ == "__main__":
    sys.exit(main())
