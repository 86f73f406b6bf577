"""Image registries: which image does a reference name, and what is in its configuration.

Enter by skopeo.py, which asks a registry with the program of that name. image_index.py reads manifests, without I/O.
May import model and below.
"""
