"""A command for payload-init, and its encoding."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a run executes in the payload container.

    All texts are bytes, as in Linux: any byte but NUL (execve(2)). The representation has neither arguments nor
    environment, in which users pass secrets.
    """

    arguments: tuple[bytes, ...] = field(repr=False)
    """The program and its arguments; at least one. A program without a slash is looked up in the job's PATH."""
    environment: tuple[bytes, ...] = field(default=(), repr=False)
    """Variables as NAME=VALUE, which override the image's."""
    removed: tuple[bytes, ...] = ()
    """Names, or prefixes that end in `*`, to remove from the container's environment."""
    directory: bytes | None = None
    otherwise: bytes | None = None
    """Program to run if the first argument does not exist."""
    umask: int = 0o022

    def encode(self) -> bytes:
        """Return the command as records of a letter, a value and a NUL (payload_init/command.c reads them).

        Raises:
            ValueError: there is no argument, or a text contains a NUL.
        """
        if not self.arguments:
            raise ValueError("there is no command to run: neither the job nor its image names one")
        records = [b"u" + name for name in self.removed]
        records += [b"e" + variable for variable in self.environment]
        records += [b"a" + argument for argument in self.arguments]
        records.append(b"m%o" % self.umask)
        if self.otherwise is not None:
            records.append(b"f" + self.otherwise)
        if self.directory is not None:
            records.append(b"d" + self.directory)
        if any(b"\0" in record for record in records):
            raise ValueError("the job's command, directory or environment contains a NUL byte")
        return b"\0".join(records) + b"\0"
