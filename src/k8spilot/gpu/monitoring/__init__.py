"""Measures the GPUs with an ephemeral container."""
