"""POST /containers/create: turns a request into a specification, and binds its image.

Enter by handler.py. The other modules have no I/O: specification.py translates the request; options.py and devices.py
refuse unsupported options, with a reason for the user. May import payload and below.
"""
