"""The plan of a turn, without I/O: which pilots are missing, which are surplus, and why.

Enter by plan.py. demand.py, turnover.py, scaling.py and backoff.py are its parts, in the terms of model.py and
resources.py. This package may import limits.py and settings.py of the provisioner, and every package below.
"""
