"""Requests to create a container: what they ask for, and what a pod cannot do. No I/O but the read of a job's ad.

Enter by specification.py, which translates a request; options.py and devices.py refuse unsupported options, with a
reason for the user. creation.py in the folder above serves the request. May import payload and below, and no other
module of docker.
"""
