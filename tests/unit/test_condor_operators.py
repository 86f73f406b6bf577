"""Settings of an operator who comes from OSPool's container: pools, the jobs' environment, the site's attributes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration.pools import resolve
from k8spilot.condor.configuration.values import render
from k8spilot.condor.environment import environment
from k8spilot.condor.folders import Folders
from k8spilot.settings.parsers import POOLS, JobVariable
from lab.settings import CHECKOUT
from tests.unit.condor_reads import STARTED, parsed, settings, written


def with_attributes(folder: Path, text: str) -> str:
    folders = Folders(execute_volume=Path("/var/lib/condor/execute"), root=folder)
    folders.extra_attributes.parent.mkdir(parents=True)
    folders.extra_attributes.write_text(text)
    return render(settings(), folders, started=STARTED)


@pytest.mark.parametrize("name", POOLS)
def test_every_pool_that_has_a_name_is_known(name: str) -> None:
    found = resolve(settings(condor_host=None, pool=name))
    assert found.is_osg
    assert all("." in host for host in found.condor_host.split(","))


def test_itb_is_another_pool_than_production() -> None:
    pools = {itb: resolve(settings(condor_host=None, pool="ospool", itb=itb)) for itb in (False, True)}
    assert pools[True] == resolve(settings(condor_host=None, pool="itb-ospool"))
    assert (pools[False].is_itb, pools[True].is_itb) == (False, True)
    assert "ospool-itb" in pools[True].condor_host
    assert "ospool-itb" not in pools[False].condor_host
    assert resolve(settings(itb=True)).is_itb  # a pool by its host


def test_path_facilitys_development_pool_has_managers_and_brokers_of_its_own() -> None:
    found = resolve(settings(condor_host=None, pool="dev-path-facility"))
    assert found.condor_host == "htcondor-cm-path.osgdev.chtc.io,htcondor-cm-path.osg-dev.river.chtc.io"
    assert found.ccb_address.startswith("htcondor-cm-path.osgdev.chtc.io:9618?sock=collector962")


def test_jobs_get_the_operators_variables_as_they_are_written(tmp_path: Path) -> None:
    values = {"A": "1", "B": "it's $(TOKEN) $HOME", "C": "", "OSG_SITE_NAME": "Mine"}
    text = written(extra_job_env=tuple(JobVariable(*one) for one in values.items()), osg_squid_location="squid.x:3128")
    found = parsed(tmp_path, text, "STARTER_JOB_ENVIRONMENT")["STARTER_JOB_ENVIRONMENT"]
    assert found == (
        "\"GLIDEIN_Site='Site (A)' GLIDEIN_ResourceName='Resource A' OSG_SITE_NAME='Mine' "
        "OSG_SQUID_LOCATION='squid.x:3128' A='1' B='it''s $(TOKEN) $HOME' C=''\""
    )


def test_the_sites_proxy_is_in_the_ad_and_used_for_transfers(tmp_path: Path) -> None:
    known = settings(osg_squid_location="squid.example:3128")
    found = parsed(tmp_path, written(osg_squid_location="squid.example:3128"), "OSG_SQUID_LOCATION", "STARTD_ATTRS")
    assert found["OSG_SQUID_LOCATION"] == '"squid.example:3128"'
    assert "OSG_SQUID_LOCATION" in found["STARTD_ATTRS"].split()
    assert environment(known, Folders.of(known), {})["http_proxy"] == "squid.example:3128"
    assert environment(known, Folders.of(known), {"http_proxy": "other"})["http_proxy"] == "other"


def test_the_sites_own_attributes_are_advertised(tmp_path: Path) -> None:
    text = with_attributes(tmp_path, '# ours\n\nRack = "A7"\nHasFastDisk=true\nK8SDomain = "example.org"\n')
    found = parsed(tmp_path, text, "Rack", "HasFastDisk", "K8SDomain", "STARTD_ATTRS")
    assert (found["Rack"], found["HasFastDisk"], found["K8SDomain"]) == ('"A7"', "true", '"example.org"')
    assert {"Rack", "HasFastDisk", "K8SDomain"} <= set(found["STARTD_ATTRS"].split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Rack", "an attribute and its value"),
        ("Rack = A 7", "a ClassAd expression"),
        ("1Rack = 7", "an attribute and its value"),
        ("Rack = 7 \\", "an attribute and its value"),
        ("start = true", "choose another name"),
        ("ALLOW_ADMINISTRATOR = true", "choose another name"),
        ("GLIDEIN_SITE = 7", "choose another name"),
        ("Memory = 7", "choose another name"),
    ],
)
def test_an_attribute_that_is_none_is_told_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"line 2 of .*extra-attributes.cfg is .*{words}"):
        with_attributes(tmp_path, f"# ours\n{line}\n")


def test_htcondors_tools_in_the_image_read_what_the_daemons_read() -> None:
    variables = re.findall(r"^ENV (.*)$", (CHECKOUT / "Dockerfile").read_text(), re.MULTILINE)
    (config,) = re.findall(r"CONDOR_CONFIG=(\S+)", " ".join(variables))
    assert config == str(Folders.of(settings()).config)


def test_an_expression_can_be_checked_before_that_file_is_written(tmp_path: Path) -> None:
    """In a process of its own: HTCondor's bindings read the configuration once."""
    program = """
import os
from k8spilot.condor.configuration.classads import check
check("1 + 1", "no")
print(os.environ["CONDOR_CONFIG"])
"""
    missing = str(tmp_path / "condor_config")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CONDOR_CONFIG": missing},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (f"{missing}\n", "")
