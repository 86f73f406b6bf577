"""What an operator sees of a pilot: metrics, probes, Events, and its status."""
