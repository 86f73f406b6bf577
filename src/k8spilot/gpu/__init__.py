"""GPUs: what the payload container has, how it came by them, and what HTCondor is told of them.

Generic modules, and one for each vendor: `nvidia`. Another vendor's would list its devices as `evidence.Device`, too.
"""
