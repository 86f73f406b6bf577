"""Image registries: the image that a reference names, and its configuration.

Enter by skopeo.py, which queries a registry with the program of that name. image_index.py reads manifests, without I/O.
This package may import model and below.
"""
