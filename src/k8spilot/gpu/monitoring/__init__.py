"""Measurement of the GPUs with an ephemeral container, the GPU metrics container.

Enter by metrics_container.py, which starts that container and follows its life. sampler.py is the program in it.
sampler_server.py receives its messages (protocol.py), sampler_state.py has the states of its connection, and meter.py
adds the figures up. This package may import gpu/discovery, and below gpu.
"""
