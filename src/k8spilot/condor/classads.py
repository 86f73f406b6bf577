"""ClassAd expressions in HTCondor's configuration: quoting, and what the operator writes checked before it is read.

The configuration has the old syntax of ClassAds: in a string, a backslash before a quote is an escape, and any other
is a backslash.
"""

import re

from k8spilot.common.errors import SettingsError


def quoted(text: str) -> str:
    """`text`, in which no backslash comes before a quote or the end, as a ClassAd string."""
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def check(expression: str, fault: str, *, parse: bool = False) -> None:
    """See to it that `expression`, one line, can be evaluated without an error, or at least be parsed.

    Raises:
        SettingsError: with `fault`.
    """
    # The bindings load HTCondor's libraries; only this needs them.
    import classad2  # noqa: PLC0415
    import htcondor2  # noqa: F401, PLC0415 -- gives ClassAds the functions that HTCondor adds

    try:
        tree = classad2.ExprTree(re.sub(r'\\(?!")', r"\\\\", expression))
    except classad2.ClassAdException:
        raise SettingsError(fault) from None
    if not parse and tree.eval() == classad2.Value.Error:
        raise SettingsError(fault)
