"""The engine's behaviour, as a client of its Docker Engine API sees it: on the simulator, and on a real node."""
