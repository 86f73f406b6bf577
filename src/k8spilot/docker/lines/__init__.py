"""HTCondor's command lines for docker.

HTCondor runs condor/docker-client.c as docker's client, which sends its words to the engine. Enter by handler.py, which
runs the lines through the code of the API's requests. grammar.py knows the lines word by word, options.py translates
those of `docker create`. This package may import the other modules of docker, and payload and below.
"""
