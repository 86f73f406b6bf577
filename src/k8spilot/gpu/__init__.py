"""GPUs of the payload container: their discovery, their utilization, and their description for HTCondor.

discovery/ finds them once in the life of a pod, monitoring/ measures them, htcondor/ writes HTCondor's formats. GPUs of
another vendor need a module beside each nvidia.py: one lists devices, and one reads them. This package may import kube
and below.
"""
