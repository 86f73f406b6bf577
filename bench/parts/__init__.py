"""The parts of the benchmark. Each is a function of a run; bench/__main__.py has their names for `--only`."""
