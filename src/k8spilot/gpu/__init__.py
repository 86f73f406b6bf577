"""GPUs: what the payload container has, how busy they are, and what HTCondor is told of them.

discovery/ finds them once in the life of a pod, monitoring/ measures them, htcondor/ writes HTCondor's forms. Another
vendor's GPUs need a module beside each nvidia.py: one that lists devices, and one that reads them. May import kube
and below.
"""
