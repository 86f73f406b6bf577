"""Measurement of the GPUs with an ephemeral container, the GPU metrics container.

Enter by metrics_container.py, which starts that container and follows its life. sampler.py is the program in it.
sampler_server.py receives its messages (protocol.py), and meter.py adds them up. This package may import gpu/discovery,
and below gpu.
"""
