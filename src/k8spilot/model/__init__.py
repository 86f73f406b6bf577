"""What k8spilot reckons with, without I/O: states, references, commands, results, policies.

payload_state.py is the table of the life of a payload container. May import settings and common.
"""
