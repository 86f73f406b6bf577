"""Tests of one part at a time: no root, no network, seconds."""
