"""The part of the Docker Engine API that HTCondor's docker universe needs.

Enter by server.py, which puts the routes of the others on the sockets. store.py has the state behind them: what Docker
calls a container is one run in a payload container. create/ makes a container. May import payload and below.
"""
