"""Queries of the pool by HTCondor's library, in a worker process.

Enter by client.py, which runs worker.py and replaces it if it hangs. queries.py is one query; matching.py evaluates the
jobs' and the slots' expressions. configuration.py is the worker's. This package may import provisioner/planning, and
every package below.
"""
