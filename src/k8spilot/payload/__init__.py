"""Jobs in a payload container, from the bind of an image to the result.

Enter by container.py, with one PayloadContainer for each slot, whose states are a table in model/. bind.py has the
steps and the time limits of a bind (`Timeouts`), binder.py changes the image, run.py runs the job, scrub/ removes its
leftovers, listeners.py reports events. This package may import gpu and below.
"""
