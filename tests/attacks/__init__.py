"""Attacks of a hostile job on its pilot, on the real node; docs/security.md lists them."""
