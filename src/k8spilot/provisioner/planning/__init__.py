"""The plan of a turn, without I/O: which pilots are missing, which are surplus, and why.

Enter by plan.py. demand.py, turnover.py, scaling.py and backoff.py are its parts, in the terms of model.py,
resources.py, limits.py (the operator's limits of a template) and access_points.py. This package may import settings.py
of the provisioner, and every package below.
"""
