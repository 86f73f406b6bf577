"""The engine's behaviour, told by who speaks the Docker Engine API to it: on the simulator, and on a real node."""
