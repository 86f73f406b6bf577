"""GPUs in the form that HTCondor reads, and the programs by which HTCondor asks the engine for it."""
