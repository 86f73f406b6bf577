"""Rules and values of k8spilot, without input or output: states, references, commands, results, policies.

payload_state.py is the table of the payload container's states. This package may import settings and common.
"""
