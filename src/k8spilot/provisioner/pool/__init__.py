"""Queries of the pool by HTCondor's library, in a worker process.

Enter by client.py, which runs worker.py and replaces it if it hangs. query.py has a query and its answer,
query_runner.py carries it out, and matching.py evaluates the expressions of jobs and slots. access_points.py remembers
access points that do not answer, and configuration.py has the worker's configuration of HTCondor. This package may
import provisioner/planning, and every package below.
"""
