"""The folders that HTCondor's daemons need, with the owners that they need them to have."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from k8spilot.common.errors import PreflightError
from k8spilot.settings import Settings

ACCOUNT = "condor"
"""The account that HTCondor's daemons run as between the moments in which they must be root."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where HTCondor's files are in the pilot container, below `root` (/ but in tests)."""

    execute_volume: Path
    """The volume that the payload container has at the same path."""
    root: Path = Path("/")

    @classmethod
    def of(cls, settings: Settings) -> "Folders":
        """Name the folders of the pilot container."""
        return cls(execute_volume=settings.execute)

    @property
    def execute(self) -> Path:
        """EXECUTE: the jobs' sandboxes."""
        return self.execute_volume / "slot"

    @property
    def log(self) -> Path:
        """LOG: what the daemons say of themselves."""
        return self.root / "var/log/condor"

    @property
    def lock(self) -> Path:
        """LOCK, the daemons' command sockets included."""
        return self.root / "run/lock/condor"

    @property
    def run(self) -> Path:
        """RUN: the procd's pipe."""
        return self.root / "run/condor"

    @property
    def local(self) -> Path:
        """The home of the condor account."""
        return self.root / "var/lib/condor"

    @property
    def spool(self) -> Path:
        """SPOOL: little on an execution point, but it must be there."""
        return self.local / "spool"

    @property
    def private(self) -> Path:
        """What the pilot makes for HTCondor: all but the two folders of secrets can be read by all."""
        return self.root / "run/k8spilot/condor"

    @property
    def config(self) -> Path:
        """The configuration file (CONDOR_CONFIG)."""
        return self.private / "condor_config"

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
        """DOCKER_CONFIG: empty and readable, or the CLI's warnings are taken for its output."""
        return self.private / "docker"

    @property
    def docker_config_of_senders(self) -> Path:
        """DOCKER_CONFIG of jobs that send credentials, in place of a file that their user wrote."""
        return self.private / "docker-of-senders"

    @property
    def docker_client(self) -> Path:
        """DOCKER: the program that HTCondor runs as docker's command line client."""
        return self.private / "docker-client"

    @property
    def programs(self) -> tuple[Path, ...]:
        """All programs of k8spilot's that HTCondor runs (condor/programs.py)."""
        return self.docker_client, self.starter, self.guard, self.gpus, self.gpu_monitor

    @property
    def program_settings(self) -> Path:
        """What those programs read of this pilot, as assignments of a shell."""
        return self.private / "programs.settings"

    @property
    def sessions(self) -> Path:
        """A file for each session that there may be beside a job, locked by its client."""
        return self.private / "sessions"

    @property
    def guard(self) -> Path:
        """STARTER_REMOTE_CMD: what a job's starter runs in the place of a job that got no container."""
        return self.private / "no-container"

    @property
    def starter(self) -> Path:
        """STARTER: the program that the startd runs for each job."""
        return self.private / "starter"

    @property
    def gpus(self) -> Path:
        """MACHINE_RESOURCE_INVENTORY_GPUs: the program that tells HTCondor of GPUs."""
        return self.private / "gpu-inventory"

    @property
    def gpu_monitor(self) -> Path:
        """STARTD_CRON_GPUs_MONITOR_EXECUTABLE: what the startd runs to know how busy the GPUs are."""
        return self.private / "gpu-monitor"

    @property
    def original_tokens(self) -> Path:
        """Where the operator's Secret with pool tokens is mounted."""
        return self.root / "etc/condor/tokens-orig.d"

    @property
    def original_passwords(self) -> Path:
        """Where the operator's Secret with pool passwords is mounted."""
        return self.root / "etc/condor/passwords-orig.d"

    @property
    def drop_ins(self) -> Path:
        """LOCAL_CONFIG_DIR: the operator's own configuration, read last."""
        return self.root / "etc/condor/k8spilot.d"

    def prepare(self) -> None:
        """Make all folders, as root with HTCondor's account as their owner, otherwise as the own user.

        Raises:
            SurroundingsError: the account is missing, or a folder cannot be made.
        """
        try:
            self._prepare()
        except KeyError:
            raise PreflightError(
                f"the image has no account `{ACCOUNT}`; use k8spilot's image, or one with HTCondor installed"
            ) from None
        except OSError as error:
            raise PreflightError(
                f"HTCondor's folder {error.filename} cannot be made ready ({error.strerror}); the pilot "
                "container needs write access to it, which root has everywhere and another user to volumes"
            ) from error

    def _prepare(self) -> None:
        owner = pwd.getpwnam(ACCOUNT) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        # The kubelet makes the volume's own folder writable for all. Left so, a job could put a link in the
        # place of EXECUTE, below the feet of a starter that works there as root.
        if os.geteuid() == 0:
            os.chown(self.execute_volume, 0, 0)
            self.execute_volume.chmod(0o755)
        for folder in (self.local, self.log, self.lock, self.run, self.spool, self.execute):
            # A starter that fetches a job's output as the job's user must not find other users' environments in a log.
            _make(folder, 0o700 if folder in (self.log, self.spool) else 0o755)
            if os.geteuid() == 0:
                os.chown(folder, owner.pw_uid, owner.pw_gid)
        for folder in (self.private, self.docker_config, self.docker_config_of_senders):
            _make(folder, 0o755)
        for folder in (self.tokens, self.passwords, self.log / "starter"):
            _make(folder, 0o700)
        _make(self.sessions, 0o700)
        os.chown(self.sessions, owner.pw_uid, owner.pw_gid)


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() in (0, folder.stat().st_uid):  # the folder of a volume is root's
        folder.chmod(mode)


def write(target: Path, text: str, mode: int) -> None:
    """Write a file aside and rename it: after a restart in place, daemons of the last run may be about to read it."""
    aside = target.with_name(f"{target.name}.new")
    aside.write_text(text)
    aside.chmod(mode)
    os.replace(aside, target)  # noqa: PTH105 -- the atomic one is meant
