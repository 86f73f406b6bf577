"""The Kubernetes API, as far as a pilot uses it: its own pod.

Enter by own_pod.py: one watch and one kind of patch. client.py is the connection, pod.py reads the pod's JSON. May
import model and below.
"""
