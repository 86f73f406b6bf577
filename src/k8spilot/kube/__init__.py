"""The part of the Kubernetes API that a pilot uses: its own pod.

Enter by own_pod.py, with one watch and one kind of patch. client.py is the connection, pod.py reads the pod's JSON.
This package may import model and below.
"""
