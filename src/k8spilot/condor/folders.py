"""Folders of HTCondor's daemons, with the owners and modes that the daemons require."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from k8spilot.common.errors import PreflightError
from k8spilot.settings import Settings

ACCOUNT = "condor"
"""Account of HTCondor's daemons while they do not need root."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Paths of HTCondor's files in the pilot container, below `root` (/ outside tests)."""

    execute_volume: Path
    """Volume of which the payload containers mount a part at the same path."""
    root: Path = Path("/")
    sandboxes: tuple[Path, ...] = ()
    """EXECUTE of the starters of each slot. One slot has the startd's own EXECUTE."""

    @classmethod
    def of(cls, settings: Settings) -> "Folders":
        """Return the folders of the pilot container."""
        return cls(execute_volume=settings.execute, sandboxes=tuple(slot.execute for slot in settings.slots))

    @property
    def execute(self) -> Path:
        """EXECUTE of the startd. In a pod with several slots it stays empty: each starter has its slot's."""
        return self.execute_volume / "slot"

    @property
    def log(self) -> Path:
        """LOG: the daemons' logs."""
        return self.root / "var/log/condor"

    @property
    def lock(self) -> Path:
        """LOCK: lock files, and the daemons' command sockets."""
        return self.root / "run/lock/condor"

    @property
    def run(self) -> Path:
        """RUN: the procd's pipe."""
        return self.root / "run/condor"

    @property
    def local(self) -> Path:
        """Home of the condor account."""
        return self.root / "var/lib/condor"

    @property
    def spool(self) -> Path:
        """SPOOL: almost empty on an execution point, but required."""
        return self.local / "spool"

    @property
    def private(self) -> Path:
        """Files that the pilot writes for HTCondor. Everybody can read them, except for the two folders of secrets."""
        return self.root / "run/k8spilot/condor"

    @property
    def config(self) -> Path:
        """Configuration file (CONDOR_CONFIG)."""
        return self.private / "condor_config"

    @property
    def end_reason(self) -> Path:
        """Reason of the pilot's end, for the supervisor (condor/daemons/end_reason.py)."""
        return self.private / "end-reason"

    @property
    def was_in_pool(self) -> Path:
        """Mark of a slot that has been in the pool, for an engine after a dead one (condor/daemons/pool_watch.py)."""
        return self.private / "was-in-pool"

    @property
    def tokens(self) -> Path:
        """SEC_TOKEN_DIRECTORY."""
        return self.private / "tokens.d"

    @property
    def passwords(self) -> Path:
        """SEC_PASSWORD_DIRECTORY."""
        return self.private / "passwords.d"

    @property
    def docker_config(self) -> Path:
        """DOCKER_CONFIG: empty and readable. Otherwise HTCondor takes the CLI's warnings for its output."""
        return self.private / "docker"

    @property
    def docker_client(self) -> Path:
        """DOCKER: the program that HTCondor runs as docker's command line client. It finds its settings beside it."""
        return self.private / "docker-client"

    @property
    def docker_client_settings(self) -> Path:
        """Settings of that program for this pilot."""
        return self.private / "docker-client.settings"

    @property
    def programs(self) -> tuple[Path, ...]:
        """All scripts of k8spilot's that HTCondor runs (condor/programs.py)."""
        return self.starter, self.guard, self.gpus, self.gpu_monitor

    @property
    def program_settings(self) -> Path:
        """Settings of those programs for this pilot, as shell assignments."""
        return self.private / "programs.settings"

    def slot_settings(self, name: str) -> Path:
        """Return the settings of those programs for one slot, by HTCondor's name of the slot."""
        return self.private / f"{name}.settings"

    @property
    def sessions(self) -> Path:
        """Folder with a file for each session that may run beside a slot's job. The session's client locks its file."""
        return self.private / "sessions"

    @property
    def guard(self) -> Path:
        """STARTER_REMOTE_CMD: the program that a starter runs in place of a job without a container."""
        return self.private / "no-container"

    @property
    def starter(self) -> Path:
        """STARTER: the program that the startd runs for each job."""
        return self.private / "starter"

    @property
    def gpus(self) -> Path:
        """MACHINE_RESOURCE_INVENTORY_GPUs: the program that lists the GPUs for HTCondor."""
        return self.private / "gpu-inventory"

    @property
    def gpu_monitor(self) -> Path:
        """STARTD_CRON_GPUs_MONITOR_EXECUTABLE: the program that reports GPU utilisation to the startd."""
        return self.private / "gpu-monitor"

    @property
    def original_tokens(self) -> Path:
        """Mount point of the operator's Secret with pool tokens."""
        return self.root / "etc/condor/tokens-orig.d"

    @property
    def original_passwords(self) -> Path:
        """Mount point of the operator's Secret with pool passwords."""
        return self.root / "etc/condor/passwords-orig.d"

    @property
    def extra_attributes(self) -> Path:
        """The operator's own attributes of the slot, at the path of OSPool's pilots."""
        return self.root / "etc/osg/extra-attributes.cfg"

    @property
    def drop_ins(self) -> Path:
        """LOCAL_CONFIG_DIR: the operator's own configuration, which HTCondor reads last."""
        return self.root / "etc/condor/k8spilot.d"

    def prepare(self) -> None:
        """Create all folders. As root, give them to HTCondor's account; otherwise to the process's own user.

        Raises:
            PreflightError: the account is missing, or a folder cannot be created.
        """
        try:
            self._prepare()
        except KeyError:
            raise PreflightError(
                f"the image has no account `{ACCOUNT}`; use k8spilot's image, or an image with HTCondor installed"
            ) from None
        except OSError as error:
            raise PreflightError(
                f"HTCondor's folder {error.filename} cannot be prepared ({error.strerror}); give the pilot container "
                "write access to it: run as root, or mount a writable volume there"
            ) from error

    def _prepare(self) -> None:
        owner = pwd.getpwnam(ACCOUNT) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        # The kubelet makes the volume's own folder writable for everybody. A job could then replace EXECUTE by a link
        # while a starter works there as root.
        if os.geteuid() == 0:
            os.chown(self.execute_volume, 0, 0)
            self.execute_volume.chmod(0o755)
        for folder in (self.local, self.log, self.lock, self.run, self.spool, self.execute, *self.sandboxes):
            # A starter that transfers a job's output as the job's user must not be able to read other users'
            # environments in a log.
            _make(folder, 0o700 if folder in (self.log, self.spool) else 0o755)
            if os.geteuid() == 0:
                os.chown(folder, owner.pw_uid, owner.pw_gid)
        for folder in (self.private, self.docker_config):
            _make(folder, 0o755)
        for folder in (self.tokens, self.passwords, self.log / "starter"):
            _make(folder, 0o700)
        _make(self.sessions, 0o700)
        os.chown(self.sessions, owner.pw_uid, owner.pw_gid)


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() in (0, folder.stat().st_uid):  # root owns the folder of a volume
        folder.chmod(mode)
