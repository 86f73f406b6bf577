"""The ephemeral container that measures the GPUs."""
