"""`python -m tests.fuzz --seconds N`: new inputs, round after round; the first failure ends it and tells its seed."""

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.drawing import EXAMPLES, SEED

_HERE = Path(__file__).parent


def main() -> int:
    """Run rounds of the tests until the time is over; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="begin no round after this time (300)")
    parser.add_argument("--seed", type=int, help="of the first round; the next ones have the next numbers")
    parser.add_argument("--examples", type=int, default=2000, help="inputs for each test in a round (2000)")
    parser.add_argument("-k", default="", help="as pytest's: which tests")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else secrets.randbelow(2**32)
    end, rounds = time.monotonic() + asked.seconds, 0
    while not rounds or time.monotonic() < end:
        environment = {**os.environ, SEED: str(seed + rounds), EXAMPLES: str(asked.examples)}
        options = ["-q", "-n", "0", "-x", "--timeout=0", "--show-capture=no", "-k", asked.k, _HERE]
        if status := subprocess.run(
            [sys.executable, "-m", "pytest", *options], env=environment, check=False
        ).returncode:
            print(f"found with --seed {seed + rounds} --examples {asked.examples}")
            return status
        rounds += 1
    print(f"{rounds} rounds of {asked.examples} inputs for each test, from seed {seed} on: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
