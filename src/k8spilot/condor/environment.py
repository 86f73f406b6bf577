"""Environment of HTCondor's daemons and tools."""

import os
from collections.abc import Mapping

from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

_PASSED_ON = frozenset(
    {"PATH", "LANG", "LC_ALL", "TZ"}
    # File transfer plugins use the web.
    | {name for proxy in ("http_proxy", "https_proxy", "no_proxy") for name in (proxy, proxy.upper())}
    # No daemon needs the address of the cluster's API, and TOKEN is a secret.
)


def environment(settings: Settings, folders: Folders, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of HTCondor's daemons, and of the docker client that they run.

    A starter has its own slot's DOCKER_HOST (scripts/starter.sh).

    Of `inherited` it contains only the variables of _PASSED_ON and HTCondor's own overrides (_CONDOR_...).
    """
    own = {name: value for name, value in inherited.items() if name in _PASSED_ON or name.startswith("_CONDOR_")}
    if settings.osg_squid_location and not {"http_proxy", "HTTP_PROXY"} & own.keys():
        own["http_proxy"] = settings.osg_squid_location
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **own,
        "HOME": "/root" if os.geteuid() == 0 else "/nonexistent",
        "CONDOR_CONFIG": str(folders.config),
        "DOCKER_HOST": f"unix://{settings.slots[0].htcondor_socket}",
        "DOCKER_CONFIG": str(folders.docker_config),
    }
