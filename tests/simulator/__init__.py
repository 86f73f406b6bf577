"""A simulator of the part of Kubernetes that a pilot sees: the API server, the kubelet and the container runtime.

Containers are local processes. What the kubelet does, and in which order, follows measurements on a real node, with
times cut down so that tests are fast; the engine's tests also run against a real node, so that it stays true.
"""
