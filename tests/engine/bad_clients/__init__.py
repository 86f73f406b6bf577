"""Clients of the engine's socket that mean no good, or do not know what they do."""
