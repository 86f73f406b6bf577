"""Random inputs from others: a short run of each with the tests, `python -m tests.fuzz` for a longer one."""
