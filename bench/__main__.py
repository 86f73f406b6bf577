"""Run all benchmarks: `python -m bench`."""

import sys
from pathlib import Path

from bench import engine, jobs
from bench.figures import Figures
from lab.api import Lab
from lab.errors import LabError


def main() -> int:
    """Measure, print, write build/bench.json."""
    figures = Figures()
    try:
        lab = Lab.up()
        engine.measure(lab, figures)
        jobs.measure(lab, figures)
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)  # noqa: T201
        return 1
    finally:
        figures.write(Path("build/bench.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
