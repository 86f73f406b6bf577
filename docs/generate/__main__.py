"""Write the generated pages into docs/, or with `--check` only compare them with what the code gives."""

import argparse
import sys

from docs.generate.pages import stale, write


def main() -> str | None:
    """Return a sentence for each page that is not up to date."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; name the pages that are out of date")
    if not parser.parse_args().check:
        write()
    return "\n".join(stale()) or None


if __name__ == "__main__":
    sys.exit(main())
