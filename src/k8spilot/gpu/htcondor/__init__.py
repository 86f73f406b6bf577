"""GPUs in the form that HTCondor reads at its start: inventory.py writes the attributes of condor_gpu_discovery.

The form of their usage is in monitoring/monitor_output.py. Enter by inventory.py. This package may import
gpu/discovery, and below gpu.
"""
