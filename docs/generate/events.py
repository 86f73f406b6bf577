"""The reference of Events, from the table by which the code publishes them."""

from typing import Final

from docs.generate.sources import EVENTS
from docs.generate.tables import table

INTRODUCTION: Final = """\
# Events

A pilot publishes Kubernetes Events on its own pod. `kubectl describe pod` shows them, and

```console
$ kubectl get events -n pilots --field-selector source=k8spilot
```

lists those of all pilots in a namespace. The service account needs `create` and `patch` for `events`; a pilot without
this right says so once in its log. Identical Events are counted in one. At most ten are published in a row, and one a
minute after that; `k8spilot_events_suppressed_total` counts the others. A job that ends well causes no Event.

*This page is generated from the code.*
"""


def page() -> str:
    """Return the page."""
    rows = [(f"`{reason}`", one.type, one.when, one.action) for reason, one in EVENTS.items()]
    return f"{INTRODUCTION}\n{table(('Reason', 'Type', 'When', 'What to do'), rows)}"
