"""Waits for credentials of the pool that are created, or corrected, after the pod.

A container that ended would find them only when the kubelet starts it again, after up to five minutes. The kubelet
looks for the contents of a mounted Secret when it synchronizes the pod: every 60 to 90 s, and at once when the pod
changes. So the pilot also changes an annotation of its pod from time to time: it may not read Secrets, and nothing else
tells it of them.
"""

import asyncio
import itertools
import logging
import random
from typing import Final

from asyncinotify import Inotify, Mask

from k8spilot.common.aio import side_by_side
from k8spilot.common.errors import PilotError
from k8spilot.condor import credentials
from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access, Api
from k8spilot.kube.pod import DELETION_COST, WAITING_COSTS
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 600.0
"""Longest wait in seconds. The startup probe of the manifest allows fifteen minutes."""
_REMIND_SECONDS: Final = 5.0
"""Seconds between two changes of the annotation in the first minute."""
_MOST_SECONDS: Final = 60.0
"""The same later, after pauses that double: many pilots may wait for one Secret."""
_EARLY: Final = 12
"""Number of changes before the pauses grow."""
_CHANGES: Final = Mask.MOVED_TO | Mask.CREATE | Mask.CLOSE_WRITE | Mask.DELETE_SELF


async def come(settings: Settings, folders: Folders, seconds: float) -> bool:
    """Wait until the files of the mounted Secrets contain usable credentials.

    Args:
        settings: settings of the pilot.
        folders: has the folders at which the Secrets are mounted.
        seconds: time limit.

    Returns:
        Whether they do.
    """
    mounted = [one for one in (folders.original_tokens, folders.original_passwords) if one.is_dir()]
    if not mounted:
        return False
    try:
        async with side_by_side(_remind_kubelet(settings)):
            with Inotify() as inotify:
                for folder in mounted:
                    inotify.add_watch(folder, _CHANGES)
                async with asyncio.timeout(seconds):
                    while not _usable(settings, folders):
                        await inotify.get()
    except OSError:  # a TimeoutError, or no inotify instance is left on the node
        return False
    return True


def _usable(settings: Settings, folders: Folders) -> bool:
    try:
        credentials.read(settings, folders)
    except PilotError:
        return False
    return True


def _pause(number: int) -> float:
    """Return the seconds before change `number` of the annotation; the first is 0."""
    grown = _REMIND_SECONDS * 2.0 ** min(max(number - _EARLY + 1, 0), 10)
    return min(grown, _MOST_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311 -- pilots that started together spread


async def _remind_kubelet(settings: Settings) -> None:
    """Change the pod now and then, so that the kubelet looks at its volumes. Without the API, or the right, give up."""
    path = f"/api/v1/namespaces/{settings.pod_namespace}/pods/{settings.pod_name}"
    try:
        async with Api(Access.in_cluster()) as api:
            for number, cost in enumerate(itertools.cycle(WAITING_COSTS)):
                await asyncio.sleep(_pause(number))
                body = {"metadata": {"annotations": {DELETION_COST: cost}}}
                await api.read("patch", path, body=body, patch="merge-patch")
    except (PilotError, OSError) as error:
        logger.info("The kubelet is not asked to look for the Secret (%s); it looks every 60 to 90 s.", error)
