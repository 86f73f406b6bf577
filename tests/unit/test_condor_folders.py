"""HTCondor's folders, credentials and environment."""

import base64
import json
import os
import pwd
from pathlib import Path

import pytest

from k8spilot.common.errors import PreflightError
from k8spilot.condor import credentials
from k8spilot.condor.environment import environment
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

NOW = 1_800_000_000


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    for folder in (made.tokens, made.passwords, made.log, made.original_tokens):
        folder.mkdir(parents=True)
    return made


def settings(token: str | None = None) -> Settings:
    return Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",), token=token)


def idtoken(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.c2ln"


def test_tokens_are_copied_for_their_owner_only(folders: Folders) -> None:
    data = folders.original_tokens / "..data"
    data.mkdir()
    (data / "pool").write_text(idtoken(sub="pilot"))
    (folders.original_tokens / "pool").symlink_to(data / "pool")  # as the kubelet mounts a Secret
    (folders.tokens / "old").touch()
    assert credentials.install(settings(), folders) is False
    assert [file.name for file in folders.tokens.iterdir()] == ["pool"]
    assert (folders.tokens / "pool").stat().st_mode & 0o777 == 0o600
    assert not (folders.tokens / "pool").is_symlink()


def test_a_token_may_come_from_the_environment(folders: Folders) -> None:
    credentials.install(settings(idtoken(sub="pilot")), folders)
    assert (folders.tokens / credentials.FROM_ENVIRONMENT).read_text() == idtoken(sub="pilot") + "\n"


def test_a_password_alone_is_a_credential(folders: Folders) -> None:
    folders.original_passwords.mkdir()
    (folders.original_passwords / "POOL").write_bytes(b"secret")
    assert credentials.install(settings(), folders) is True
    assert (folders.passwords / "POOL").read_bytes() == b"secret"


def test_no_credential_at_all_is_told(folders: Folders) -> None:
    with pytest.raises(PreflightError, match=r"mount a Secret .* at .*tokens-orig.d or set TOKEN"):
        credentials.install(settings(), folders)


def test_an_expired_token_is_told_with_its_date(folders: Folders) -> None:
    with pytest.raises(PreflightError, match="expired on 2001-09-09 at 01:46 UTC"):
        credentials.install(settings(idtoken(exp=1_000_000_000)), folders)


def test_one_good_token_is_enough() -> None:
    text = f"# ours\n{idtoken(exp=NOW - 1)}\n\n{idtoken(exp=NOW + 1)}\n".encode()
    assert len(credentials.token_faults(text, NOW)) == 1


@pytest.mark.parametrize("text", [b"", b"password", b"a.b.c", b"e30.W10.x", b"\xff.\xff.\xff"])
def test_what_is_no_token_is_told(text: bytes) -> None:
    assert credentials.token_faults(text, NOW) == ["not an IDTOKEN"]


def test_the_daemons_get_neither_the_token_nor_the_clusters_address(folders: Folders) -> None:
    inherited = {"TOKEN": "x", "KUBERNETES_SERVICE_HOST": "y", "_CONDOR_START": "z", "https_proxy": "p", "HOME": "/h"}
    env = environment(settings(), folders, inherited)
    assert env["DOCKER_HOST"] == "unix:///run/k8spilot/htcondor-docker.sock"
    assert env["CONDOR_CONFIG"] == str(folders.config)
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert (env["_CONDOR_START"], env["https_proxy"], env["HOME"]) == ("z", "p", home)
    assert not {"TOKEN", "KUBERNETES_SERVICE_HOST"} & set(env)


def test_folders_belong_to_htcondors_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8spilot.condor.folders.ACCOUNT", pwd.getpwuid(os.geteuid()).pw_name)
    made = Folders(execute_volume=tmp_path / "execute", root=tmp_path)
    made.execute_volume.mkdir(mode=0o777)
    made.prepare()
    made.prepare()  # after a restart in place
    assert made.execute.is_dir()
    for secret in (made.tokens, made.log, made.spool):  # logs have the environment of other users' jobs
        assert secret.stat().st_mode & 0o777 == 0o700
    assert not list(made.docker_config.iterdir())
    if os.geteuid() == 0:  # what no job can replace
        assert made.execute_volume.stat().st_mode & 0o777 == 0o755


def test_a_missing_account_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8spilot.condor.folders.os.geteuid", lambda: 0)
    monkeypatch.setattr("k8spilot.condor.folders.ACCOUNT", "no-such-account")
    with pytest.raises(PreflightError, match="no account `no-such-account`"):
        Folders(execute_volume=tmp_path, root=tmp_path).prepare()
