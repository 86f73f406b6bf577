"""The part of the Docker Engine API that HTCondor's docker universe needs.

Enter by server.py, which serves the routes of the other modules. store.py has their state: a container of Docker is one
run in a payload container. creation.py creates one from a request that create/ reads; lines/ serves HTCondor's own
command lines. This package may import payload and below.
"""
