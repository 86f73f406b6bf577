"""Simulation that compares the provisioner's plan with the loop of PRP's provisioner: `python -m bench.provisioning`.

Both make pilots in the same simulated cluster for the same drawn jobs. No lab, no cluster and no pool is used.
"""
