"""Settings of an operator: one environment variable for each field.

fields.py has the settings, parsers.py the types of values. This package may import common.
"""

from k8spilot.settings.constants import ENGINE, KILLING_SECONDS, MARGIN_SECONDS, PILOT, SENDS_CREDENTIALS
from k8spilot.settings.fields import Settings, variables

__all__ = ["ENGINE", "KILLING_SECONDS", "MARGIN_SECONDS", "PILOT", "SENDS_CREDENTIALS", "Settings", "variables"]
