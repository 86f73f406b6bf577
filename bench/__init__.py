"""The project's figures, measured in one run on the lab's real node: `python -m bench`."""
