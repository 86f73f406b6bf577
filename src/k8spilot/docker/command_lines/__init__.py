"""HTCondor's command lines for docker.

HTCondor runs condor/docker-client.c as docker's client, which sends its words to the engine. grammar.py knows the lines
word by word, options.py translates those of `docker create`, and handler.py runs them through the code of the API's
requests. Enter by handler.py. This package may import every module of docker but server.py, and payload and below.
"""
