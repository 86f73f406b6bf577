"""Rules and values of k8spilot, without input or output: states, references, commands, results, policies.

Enter by payload_state.py, the table of the payload container's states. image_policy.py, avoided_images.py,
black_hole.py, killed_containers.py and disk.py are the rules by which a site refuses, returns or ends jobs. This
package may import settings and common.
"""
