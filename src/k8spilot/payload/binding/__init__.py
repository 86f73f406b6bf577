"""Late binding: the change of the payload container's image in the running pod.

Enter by `Bind` in bind.py, one bind from the request for it to its end. image_lookup.py asks the registry, binder.py
changes the pod, image_change.py reads the kubelet's answer. image_requests.py and abandoned_pull.py know what may come
late. idle_image.py has the image between jobs. This package may import listeners.py and usage.py of payload, and gpu
and below.
"""
