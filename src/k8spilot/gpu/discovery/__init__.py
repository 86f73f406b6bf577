"""Discovery of the payload container's GPUs, once in the life of a pod.

probe.py is a program that runs in the payload container and prints evidence (evidence.py, nvidia.py). pod_request.py
reads the pod's request. verdict.py decides from both which GPUs jobs may use; record.py stores the result. Enter by
payload/gpu_discovery.py, which runs them in this order. This package may import kube and below.
"""
