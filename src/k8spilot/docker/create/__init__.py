"""POST /containers/create: a request becomes a specification, and its image is bound.

Enter by handler.py. The others have no I/O: specification.py translates the request; options.py and devices.py refuse
what a pod cannot do, with a reason for the user.
"""
