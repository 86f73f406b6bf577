"""The provisioner's pure parts."""
