"""Tokens of the pool as HTCondor takes them."""

import stat
from pathlib import Path

from k8spilot.provisioner.pool.configuration import PoolConfiguration


def test_tokens_become_files_that_only_the_provisioner_reads_and_are_then_required(tmp_path: Path) -> None:
    """HTCondor ignores a token in a file of another user, such as a Secret's (read_secure_file)."""
    secret, own = tmp_path / "secret", tmp_path / "own"
    (secret / "..data").mkdir(parents=True)
    (secret / "token").write_text("t1")
    own.mkdir()
    configuration = PoolConfiguration(own, "pool", secret)
    assert configuration.refresh()
    copy = own / "tokens/token"
    assert (copy.read_text(), stat.S_IMODE(copy.stat().st_mode)) == ("t1", 0o600)
    assert "COLLECTOR_AUTHENTICATION = REQUIRED" in configuration.file.read_text()
    assert not configuration.refresh()


def test_a_token_that_is_renewed_or_comes_later_is_taken(tmp_path: Path) -> None:
    configuration = PoolConfiguration(tmp_path, "pool", tmp_path / "secret")
    assert configuration.refresh()
    assert "COLLECTOR_AUTHENTICATION = PREFERRED" in configuration.file.read_text()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/token").write_text("t1")
    assert configuration.refresh()
    (tmp_path / "secret/token").write_text("t2")
    assert configuration.refresh()
    assert (tmp_path / "tokens/token").read_text() == "t2"
