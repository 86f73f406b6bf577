"""Jobs in a payload container, from the bind of an image to the result.

Enter by container.py, which has one PayloadContainer for each slot, whose states are a table in model/. binding/ binds
an image (its time limits are `Timeouts` in bind.py), run.py runs the job with command/, scrub/ removes its leftovers,
listeners.py reports events. May import gpu and below.
"""
