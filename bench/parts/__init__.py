"""The parts of the benchmark: functions of a run, chosen by the names in bench/__main__.py (`--only`)."""
