"""Pod templates: suspended CronJobs of the namespace, and the slots that their pilots would have.

Enter by store.py, which keeps them up to date, or by pod_template.py, which reads one. events.py reports on them, and
manifest_findings.py checks them in a manifest. This package may import provisioner/planning, and the provisioner's
cluster.py, report.py and settings.py.
"""
