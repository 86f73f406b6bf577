"""Preflight checks: everything that a pilot needs, before its first job and in `k8spilot check`.

Enter by checks.py. Every other module checks one subject (the pod's spec, the cluster, the pilot container, ...) and
returns findings (finding.py): good, a warning, or a fault, each one sentence for the operator. This package may import
every package but cli, engine and telemetry.
"""
