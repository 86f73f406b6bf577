"""Preflight checks: everything that a pilot needs, before its first job and in `k8spilot check`.

Enter by checks.py for a pod, and by manifest.py for `check --manifest`; pod_spec.py serves both. Every other module
checks one subject (the cluster, the pilot container, ...) and returns findings (finding.py): good, a warning, or a
fault, each one sentence for the operator. This package may import telemetry and below.
"""
