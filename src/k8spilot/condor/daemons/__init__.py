"""The watch of HTCondor's daemons, their logs and their pool, while they run.

Enter by watch.py, which watches the daemons' logs (logs.py, log_follower.py, log_lines.py), their liveness, the pool
(pool_watch.py, collectors.py) and the pod's processes. end_reason.py is why a pilot ends. collectors.py serves
preflight, too. This package may import condor/ads, condor/configuration, the modules of condor but agent.py and
install.py, and payload and below.
"""
