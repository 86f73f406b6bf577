"""The slots' ads in the pool: what the pilot changes in them while the startd runs.

Enter by startd_ad.py. publisher.py decides what is published of images and of the API server; node_images.py has the
images of the node. agent_link.py has the same interface where HTCondor has its own container. This package may import
condor/configuration, folders.py and tools.py of condor, and payload and below.
"""
