"""What a pilot needs, checked before its first job, and by `k8spilot check`.

Enter by checks.py. Each of the others looks at one thing (the pod's spec, the cluster, the pilot container, ...) and
returns findings (finding.py): good, a warning, or a fault, each one sentence for the operator. May import every package
but cli, engine and telemetry.
"""
