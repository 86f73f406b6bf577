"""Jobs in a payload container, from the bind of an image to the result.

Entry point: container.py, with one PayloadContainer for each slot, whose states are a table in model/. binder.py
changes the image, run.py runs the job, scrub/ removes its leftovers, listeners.py reports events. May import gpu and
below.
"""
