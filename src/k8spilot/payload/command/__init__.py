"""A command in a payload container, with its streams.

Enter by exec_session.py: the release of a command and the wait for its end. stdio.py connects the command's streams
with the attached clients, and output_buffer.py keeps the last part of the command's output. This package may import gpu
and below.
"""
