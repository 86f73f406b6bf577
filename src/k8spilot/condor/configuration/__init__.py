"""HTCondor's configuration in a pilot: the template and its values.

Enter by `render` in values.py, which fills template.py in. image_expressions.py, per_slot_attributes.py, slot_types.py
and pools.py have parts of it; classads.py and extra_attributes.py read what the operator adds. expected_ad.py has the
ad that follows from it, by the program expand.py. This package may import folders.py of condor, and payload and below.
"""
