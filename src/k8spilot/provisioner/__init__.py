"""The provisioner (`k8spilot provision`): pilots come when jobs wait, and go when none do.

One turn: pool_queries.py has the idle jobs of the pool, template_store.py the pod templates and their limits,
supply.py the pilots that exist. plan.py, which is pure, decides what is missing and what is surplus, and actuator.py
does it. controller.py repeats the turns. Kubernetes' objects are the only state. Come in by app.py. This package may
import everything but cli and engine.
"""
