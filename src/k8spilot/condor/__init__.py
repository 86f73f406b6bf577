"""HTCondor in the pilot container: its configuration, credentials, programs and daemons, and the slot's ad.

Enter by install.py before HTCondor starts, and by startd_ad.py, daemon_logs.py and liveness.py while it runs.
agent.py is a program beside HTCondor where the engine has another container. May import payload and below.
"""
