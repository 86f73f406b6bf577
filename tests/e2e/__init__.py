"""End to end: real HTCondor jobs through a real pool, in pilot pods on the lab's node."""
