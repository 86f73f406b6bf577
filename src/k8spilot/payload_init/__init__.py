"""payload-init, the first process of every payload container, and the pilot's end of its socket.

Enter by server.py, to which payload-init connects. channel.py is one connection. payload-init.c documents the messages.
tidy.c removes the files that jobs leave. install.py copies both programs into the exchange volume. This package may
import model and below.
"""
