"""The provisioner (`k8spilot provision`): pilots come when jobs wait, and go when none do.

One turn: demand.py has the idle jobs of the pool by kind, templates.py the pod templates of the operator and their
limits, supply.py the pilots that exist. plan.py, which is pure, decides what is missing and what is surplus, and
actuator.py does it. controller.py repeats the turns. Kubernetes' objects are the only state. This package may import
everything but cli and engine.
"""
