"""The watch of HTCondor's daemons, their logs and their pool, while they run.

Enter by watch.py, which starts and ends all of it: the daemons' logs (logs.py, log_follower.py, log_lines.py), their
liveness, the pool (pool_watch.py, collectors.py), the pod's processes, and why the pilot ends (end_reason.py). This
package may import condor/ads and condor/configuration, and the modules of condor but agent.py and install.py.
"""
