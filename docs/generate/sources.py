"""What the generated pages are generated from. All imports of k8spilot are here."""

from k8spilot.cli import app
from k8spilot.gpu.messages import Device, Figures
from k8spilot.gpu.meter import Meter
from k8spilot.gpu.readings import Process
from k8spilot.model.event_reasons import EVENTS
from k8spilot.model.lifecycle import State
from k8spilot.observe.gpu_families import families
from k8spilot.observe.metrics import BIND_RESULTS, EXIT_REASONS, HOLD_CLASSES, Metrics, Now
from k8spilot.settings import Settings, variables

__all__ = [
    "BIND_RESULTS",
    "EVENTS",
    "EXIT_REASONS",
    "HOLD_CLASSES",
    "Device",
    "Figures",
    "Meter",
    "Metrics",
    "Now",
    "Process",
    "Settings",
    "State",
    "app",
    "families",
    "variables",
]
