"""A command for payload-init, and its form on the wire."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """What one run in the payload container executes.

    All texts are bytes, as Linux has them: anything but NUL (execve(2)).
    """

    arguments: tuple[bytes, ...]
    """The program and its arguments; at least one. Without a slash it is looked up in the job's PATH."""
    environment: tuple[bytes, ...] = ()
    """NAME=VALUE, over the image's own variables."""
    removed: tuple[bytes, ...] = ()
    """Names, or prefixes that end in `*`, to take out of the environment that the container came with."""
    directory: bytes | None = None
    otherwise: bytes | None = None
    """Program to run in place of the first argument where that is not there."""
    umask: int = field(default=0o022)

    def encode(self) -> bytes:
        """Records of a letter, a value and a NUL, as payload_init/command.c reads them.

        Raises:
            ValueError: no argument is given, or a text has a NUL in it.
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
            raise ValueError("a NUL byte is in the job's command, directory or environment")
        return b"\0".join(records) + b"\0"
