"""The part of the Docker Engine API that HTCondor's docker universe needs.

Each module serves one group of paths; docker/server.py puts them on the socket. What Docker calls a
container is one run in a payload container.
"""
