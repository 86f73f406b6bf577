"""Jobs in a payload container, from the bind of an image to the result.

Enter by container.py, which has one PayloadContainer for each slot, whose states are a table in model/. bind.py has the
steps of a bind and its time limits (`Timeouts`), binder.py changes the image, run.py runs the job, scrub/ removes its
leftovers, listeners.py reports events. May import gpu and below.
"""
