"""payload-init, the first process of every payload container, and the pilot's end of its socket.

Enter by server.py, to which payload-init connects. channel.py is one connection, by which payload-init is killed, too.
messages.py is the grammar of its messages, which payload-init.c documents. process.py is a command in the container,
and leash.py the terminal by which a pilot without root kills payload-init. tidy.c removes the files that jobs leave.
install.py copies both programs into the volume `programs`. This package may import model and below.
"""
