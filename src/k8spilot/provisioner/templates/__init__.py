"""Pod templates: suspended CronJobs of the namespace, and the slots that their pilots would have.

Enter by store.py, which keeps them up to date, or by pod_template.py, which reads one. manifest_findings.py checks them
in a manifest. This package may import provisioner/planning, the provisioner's cluster.py, limits.py and settings.py,
and every package below.
"""
