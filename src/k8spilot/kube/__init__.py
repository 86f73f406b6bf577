"""The part of the Kubernetes API that a pilot uses: its own pod.

Entry point: own_pod.py, with one watch and one kind of patch. client.py is the connection, pod.py reads the pod's JSON.
May import model and below.
"""
