"""The part of the Docker Engine API that HTCondor's docker universe needs.

Enter by server.py, which serves the routes of the other modules. store.py has their state: a container of Docker is one
run in a payload container. creation.py creates one from a request that create_request/ reads; command_lines/ serves
HTCondor's own command lines. creation.py, create_request/ and job_ends.py decide which jobs HTCondor holds. This
package may import payload and below.
"""
