"""Code for every package; it imports no other package of k8spilot.

Import each module where it is needed: errors.py has the errors, whose texts people read; logs.py the log lines and
their subject, a job; aio.py what asyncio lacks; files.py the atomic replacement of files. Of HTTP there are the limits
of our servers (http_limits.py), a client for Unix sockets (unix_http.py), and the paths of the pilot's own API beside
Docker's (pilot_api.py).
"""
