"""Removes what one job leaves before the next one begins."""
