"""The rule for the reuse of a payload container: only by the next job of the same claim."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

TENANT: Final = ("Name", "PublicClaimId", "RemoteUser", "RemoteOwner", "JobId")
"""Attributes of a slot's ad that name its tenant. The startd sets them (Claim.cpp, Claim::publish), and no job can."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The job of a slot and its owner, as the startd knows them."""

    claim: str
    """HTCondor's public id of the claim: the promise of the slot to an access point, for one job after another."""
    user: str
    """User of this job (RemoteUser). An access point can give a claim to several users of one accounting group."""
    owner: str
    """User for whom the slot was claimed (RemoteOwner)."""
    job: str
    """HTCondor's cluster.proc."""

    def may_follow(self, last: "Tenant") -> bool:
        """Return whether this job may run in the container of the `last` one."""
        return (self.claim, self.user, self.owner) == (last.claim, last.user, last.owner)


def tenant_of(ads: Iterable[Mapping[str, Any]], slot: str) -> Tenant | None:
    """Return the tenant of HTCondor's slot `slot`, or None if the slots' ads do not name one completely."""
    ad = next((one for one in ads if str(one.get("Name", "")).partition("@")[0] == slot), {})
    words = [word for name in TENANT[1:] if isinstance(word := ad.get(name), str) and word]
    return Tenant(*words) if len(words) == len(TENANT) - 1 else None
