"""The plan of a turn, without I/O: which pilots are missing, which are surplus, and why.

Enter by plan.py. demand.py, job_rate.py, scaling.py and template_closure.py are its parts, in the terms of model.py and
resources.py. This package may import limits.py and settings.py of the provisioner, and every package below.
"""
