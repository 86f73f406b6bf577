"""Attacks of a hostile job on its pilot, on the real node; docs/reference/attacks.md lists them."""
