"""The objects of k8spilot that the generated pages are made from. All imports of k8spilot are here."""

from k8spilot.cli.main import app
from k8spilot.gpu.monitoring.meter import Meter
from k8spilot.gpu.monitoring.protocol import DeviceFigures, Figures
from k8spilot.gpu.monitoring.vendor_interface import GpuProcess
from k8spilot.model.event_reasons import EVENTS
from k8spilot.model.payload_state import PayloadState
from k8spilot.provisioner.limits import Limits
from k8spilot.provisioner.metrics import ProvisionerMetrics
from k8spilot.provisioner.planning.model import PilotState, Template
from k8spilot.provisioner.planning.plan import TemplatePlan, TurnPlan
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.provisioner.settings import variables as provisioner_variables
from k8spilot.provisioner.template_events import EVENTS as TEMPLATE_EVENTS
from k8spilot.settings.fields import Settings, variables
from k8spilot.settings.other_pilots import OTHER_VARIABLES, OtherVariable
from k8spilot.settings.reference import default_of, documented
from k8spilot.telemetry.gpu_metrics import families
from k8spilot.telemetry.metrics import BIND_RESULTS, EXIT_REASONS, HOLD_CLASSES, Metrics, Now, NowOfSlot

__all__ = [
    "BIND_RESULTS",
    "EVENTS",
    "EXIT_REASONS",
    "HOLD_CLASSES",
    "OTHER_VARIABLES",
    "TEMPLATE_EVENTS",
    "DeviceFigures",
    "Figures",
    "GpuProcess",
    "Limits",
    "Meter",
    "Metrics",
    "Now",
    "NowOfSlot",
    "OtherVariable",
    "PayloadState",
    "PilotState",
    "ProvisionerMetrics",
    "ProvisionerSettings",
    "Settings",
    "Template",
    "TemplatePlan",
    "TurnPlan",
    "app",
    "default_of",
    "documented",
    "families",
    "provisioner_variables",
    "variables",
]
