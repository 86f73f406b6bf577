"""GPUs of the payload container: their discovery, their utilization, and their description for HTCondor.

discovery/ finds them once in the life of a pod, monitoring/ measures them, htcondor/ describes them. Enter by one of
the three: each names its own module. pod_gpus.py joins the discoveries of all payload containers.
docs/explanation/gpus.md lists what GPUs of another vendor need. This package may import kube and below.
"""
