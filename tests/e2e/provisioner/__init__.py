"""The provisioner, end to end."""
