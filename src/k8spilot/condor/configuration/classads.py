"""ClassAd expressions for HTCondor's configuration: quoting, and validation of the operator's expressions.

The configuration uses the old ClassAd syntax: in a string, a backslash before a quote is an escape, and any other
backslash is literal.
"""

import os
import re

from k8spilot.common.errors import SettingsError


def quoted(text: str) -> str:
    """Return `text` as a ClassAd string. No backslash in it may precede a quote or the end."""
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def check(expression: str, fault: str, *, parse: bool = False) -> None:
    """Check that `expression`, one line, can be evaluated without an error, or at least be parsed.

    Args:
        expression: a ClassAd expression.
        fault: message of the error.
        parse: only parse it.

    Raises:
        SettingsError: the expression is invalid; the message is `fault`.
    """
    # The bindings load HTCondor's libraries. No other code of the engine needs them. They read HTCondor's
    # configuration, and the image's CONDOR_CONFIG is a file that the pilot has yet to write.
    named = os.environ.pop("CONDOR_CONFIG", None)
    try:
        import classad2  # noqa: PLC0415
        import htcondor2  # noqa: F401, PLC0415 -- adds HTCondor's functions to ClassAds
    finally:
        if named is not None:
            os.environ["CONDOR_CONFIG"] = named
    try:
        tree = classad2.ExprTree(re.sub(r'\\(?!")', r"\\\\", expression))
    except classad2.ClassAdException:
        raise SettingsError(fault) from None
    if not parse and tree.eval() == classad2.Value.Error:
        raise SettingsError(fault)
