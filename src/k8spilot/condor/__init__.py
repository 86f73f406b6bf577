"""HTCondor in the pilot container: configuration, credentials, programs, daemons and the slot's ad.

configuration/ makes HTCondor's configuration. Enter by install.py before HTCondor starts, and by ads/ and daemons/
while it runs. agent.py is a separate program. It runs beside HTCondor where the engine has its own container. This
package may import payload and below.
"""
