"""A command in a payload container, with its streams.

Enter by exec_session.py: the release of a command and the wait for its end. stdio.py connects its streams with the
attached clients, and output_buffer.py keeps the last part of its output. This package may import payload_init
and below.
"""
