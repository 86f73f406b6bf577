"""Settings of an operator: one environment variable for each field.

Enter here: import `Settings` from this package. fields.py has the settings, slots.py what follows from them for each
slot, parsers.py the types of values, constants.py what no operator sets. unknown_variables.py finds variables without
effect, among them misspelt ones and those of other pilots (other_pilots.py); spellings.py finds one name in upper and
in lower case. reference.py describes all settings. This package may import common.
"""

from k8spilot.settings.constants import ENGINE, KILLING_SECONDS, MARGIN_SECONDS, PILOT, SENDS_CREDENTIALS, SLOT_SIZES
from k8spilot.settings.fields import Settings, variables
from k8spilot.settings.slots import SlotSettings

__all__ = [
    "ENGINE",
    "KILLING_SECONDS",
    "MARGIN_SECONDS",
    "PILOT",
    "SENDS_CREDENTIALS",
    "SLOT_SIZES",
    "Settings",
    "SlotSettings",
    "variables",
]
