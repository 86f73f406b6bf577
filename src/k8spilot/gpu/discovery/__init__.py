"""Finds the GPUs of the payload container, once in the life of a pod."""
