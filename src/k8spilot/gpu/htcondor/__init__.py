"""GPUs in the form that HTCondor reads, and the programs that fetch it from the engine."""
