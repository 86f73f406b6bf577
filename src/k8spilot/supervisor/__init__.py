"""The first process of the pilot container."""
