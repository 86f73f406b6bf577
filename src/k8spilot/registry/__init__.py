"""Image registries: skopeo.py asks them, image_index.py reads their answers."""
