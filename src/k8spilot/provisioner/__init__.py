"""The provisioner (`k8spilot provision`): pilots come when jobs wait, and go when none do.

One turn: pool/ has the idle jobs of the pool, templates/ the pod templates, limits.py their limits, supply.py the
pilots that exist. planning/, which is pure, decides what is missing and what is surplus, and actuator.py does it.
report.py and template_events.py tell people. controller.py repeats the turns. Kubernetes' objects are the only state.
Enter by app.py. This package may import every package but cli and engine.
"""
