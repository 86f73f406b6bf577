"""Settings of the provisioner: environment variables, with the parsers of the pilot's settings."""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self

from k8spilot.common.errors import SettingsError
from k8spilot.common.logs import Format
from k8spilot.condor.configuration import pools
from k8spilot.condor.configuration.classads import check
from k8spilot.settings import Settings, parsers


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the pool's demand that this cluster serves: from `begin` to `end`, of 0 to 1."""

    begin: float = 0.0
    end: float = 1.0

    @property
    def size(self) -> float:
        """Size of the part."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.begin:g}-{self.end:g}"


def share(value: str) -> Share:
    """Parse a share: `0.4` is the part from 0 to 0.4, `0.4-1` the rest."""
    match = re.fullmatch(r"\s*(?:([0-9.]+)\s*-\s*)?([0-9.]+)\s*", value)
    try:
        begin, end = (float(match[1] or 0), float(match[2])) if match else (1.0, 0.0)
    except ValueError:
        begin, end = 1.0, 0.0
    if not 0 <= begin < end <= 1:
        raise ValueError("it must be a part of the demand, such as 0.5, or the two ends of a part, such as 0.5-1")
    return Share(begin, end)


def expression(value: str) -> str:
    """Parse a ClassAd expression."""
    try:
        check(value, "it must be a ClassAd expression", parse=True)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    return value


def _of[Value](read: Callable[[str], Value], default: Value, variable: str) -> Value:
    value: Value = field(default=default, metadata={"read": read, "variable": variable})
    return value


@dataclass(frozen=True)
class ProvisionerSettings:
    """All settings of a provisioner."""

    condor_host: str | None = _of(parsers.hosts, None, "CONDOR_HOST")
    """The central manager's hosts, as for pilots. Required, unless `POOL` is set."""

    pool: str | None = _of(parsers.pool, None, "POOL")
    """The pool, as for pilots."""

    schedds: str = _of(expression, "true", "K8SPILOT_SCHEDDS")
    """ClassAd expression over the ads of access points: the jobs of those for which it is true are counted."""

    share: Share = _of(share, Share(), "K8SPILOT_SHARE")
    """The part of the demand that this cluster serves, if provisioners of several clusters serve one pool: such as
    `0-0.4` in one of them and `0.4-1` in the other."""

    interval_seconds: float = _of(parsers.number(least=1, most=600), 5.0, "K8SPILOT_INTERVAL_SECONDS")
    """Seconds from the beginning of one turn to that of the next."""

    metrics_port: int = _of(parsers.whole(0, 65535), 9464, "K8SPILOT_METRICS_PORT")
    """TCP port of metrics and probes; 0 for none."""

    log_level: str = _of(parsers.one_of(("DEBUG", "INFO", "WARNING", "ERROR")), "INFO", "K8SPILOT_LOG_LEVEL")
    """Level of the log."""

    log_format: Format = _of(parsers.one_of(("text", "json")), "text", "K8SPILOT_LOG_FORMAT")
    """Format of the log."""

    pod_name: str = _of(parsers.plain, "", "POD_NAME")
    """Name of the provisioner's pod, by which it holds its Lease. Without it, a name that no other process has."""

    pod_namespace: str = _of(parsers.plain, "", "POD_NAMESPACE")
    """Namespace of the templates and the pilots. Required."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings of an environment.

        Raises:
            SettingsError: a variable is missing or invalid.
        """
        values: dict[str, Any] = {}
        faults = []
        for name, setting in variables().items():
            if text := environment.get(name):
                try:
                    values[setting.name] = setting.metadata["read"](text)
                except ValueError as error:
                    faults.append(f"{name} is {text!r}, but {error}")
        found = None if faults else cls(**values)
        if found is not None and not found.pod_namespace:
            faults.append("POD_NAMESPACE must be set to the namespace of the pod templates")
        if found is not None and not (found.condor_host or found.pool):
            faults.append("CONDOR_HOST or POOL must be set to the pool whose jobs are counted")
        if found is None or faults:
            raise SettingsError("; ".join(faults))
        return found if found.pod_name else replace(found, pod_name=f"provisioner-{secrets.token_hex(4)}")

    @property
    def central_manager(self) -> str:
        """CONDOR_HOST of the pool."""
        known = {"CONDOR_HOST": self.condor_host or "", "POOL": self.pool or ""}
        names = {"POD_NAME": self.pod_name, "POD_NAMESPACE": self.pod_namespace}
        return pools.resolve(Settings.of({**known, **names, "K8SPILOT_SERVICES": "engine"})).condor_host


def variables() -> dict[str, Field[Any]]:
    """Return the settings by the names of their environment variables."""
    return {setting.metadata["variable"]: setting for setting in fields(ProvisionerSettings)}
