"""Hundreds of short jobs, and faults drawn at random: what becomes of the jobs, and of the pilots."""
