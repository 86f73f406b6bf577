"""The soak test: hundreds of short jobs and random faults. It checks what becomes of the jobs and of the pilots."""
