"""GPUs in the form that HTCondor reads."""
