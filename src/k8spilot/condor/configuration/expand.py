"""Program: print parameters of the HTCondor configuration in CONDOR_CONFIG, with their macros expanded, as JSON."""

import json
import sys

import htcondor2


def main() -> None:
    """Print START, STARTD_ATTRS and the parameters that STARTD_ATTRS names."""
    parameters = htcondor2.param
    listed = str(parameters.get("STARTD_ATTRS") or "")
    names = ["START", *listed.replace(",", " ").split()]
    found = {name: str(parameters[name]) for name in names if parameters.get(name) is not None}
    json.dump({**found, "STARTD_ATTRS": listed}, sys.stdout)


if __name__ == "__main__":
    main()
