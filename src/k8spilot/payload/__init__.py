"""Jobs in a payload container, from the bind of an image to the result.

Enter by container.py: one PayloadContainer for each slot, whose states are a table in model/. binder.py changes the
image, run.py runs the job, scrub/ removes what it leaves, listeners.py reports what happens. May import gpu and below.
"""
