"""A file transfer plugin that a site adds to the pilot's image (docs/how-to/transfer-plugins.md)."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.levels import NAMESPACES, Level
from lab.oci import Entry, Pusher, layer
from lab.pilot import BASE_IMAGE
from tests.e2e.pool import Pool, result
from tests.e2e.test_files import INPUT_HOLD, web  # noqa: F401 -- the fixture is a web server on the access point

pytestmark = pytest.mark.landing

PLUGIN = "/usr/local/libexec/site_plugin"
SOURCE = b"""#!/usr/bin/python3
import os, sys, urllib.request
import classad2

if sys.argv[1:] == ["-classad"]:
    print('PluginType = "FileTransfer"\\nSupportedMethods = "site"\\nMultipleFileSupport = true\\nProtocolVersion = 2')
    sys.exit()
names = dict(zip(sys.argv[1::2], sys.argv[2::2]))
status = 0
with open(names["-outfile"], "w") as outcome:
    for wanted in classad2.parseAds(open(names["-infile"])):
        url, name = wanted["Url"], wanted["LocalFileName"]
        found = classad2.ClassAd({"TransferUrl": url, "TransferFileName": os.path.basename(name)})
        found["TransferSuccess"] = True
        try:
            data = open(name, "rb").read() if "-upload" in sys.argv else None
            request = urllib.request.Request(url.replace("site:", "http:"), data, method="PUT" if data else "GET")
            with urllib.request.urlopen(request, timeout=20) as answer:
                if data is None:
                    open(name, "wb").write(answer.read())
        except OSError as error:
            status, found["TransferSuccess"], found["TransferError"] = 1, False, f"the site says: {error}"
        outcome.write(str(found) + "\\n")
sys.exit(status)
"""
"""The protocol of plugins for several files (HTCondor manual, File Transfer Plugins)."""


@pytest.fixture(scope="module", params=NAMESPACES)
def site(lab: Lab, owner: str, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, str]]:
    """A pilot of each level whose image has the plugin: the lab at that level, and the pod's name."""
    level: Level = request.param
    folders = [Entry("usr"), Entry("usr/local"), Entry("usr/local/libexec")]
    addition = layer(*folders, Entry(PLUGIN[1:], 0o755, SOURCE))
    image, _, digest = Pusher(lab.registry).push_with(lab.image, "with-plugin", addition).partition("@")
    usual = lab.access_point("alice", "condor_config_val FILETRANSFER_PLUGINS").strip()
    here, pod = lab.at(level), f"e2e-{owner}-plugin-{level}"
    overlay = {"images": [{"name": BASE_IMAGE, "newName": image.rpartition(":")[0], "digest": digest}]}
    pilot.deploy(here, pod, {"_CONDOR_FILETRANSFER_PLUGINS": f"{usual}, {PLUGIN}"}, overlay)
    jobs.wait_in_pool(here, pod)
    yield here, pod
    pilot.discard(here, pod)


def test_jobs_use_the_urls_of_a_plugin_that_the_site_adds(
    pool: Pool,
    site: tuple[Lab, str],
    web: tuple[str, str],  # noqa: F811
) -> None:
    (lab, pod), (address, folder) = site, web
    ours = pool.of_pod(pod)
    done = ours.shell(
        "cat page; echo mine >made",
        transfer_input_files=f"site://{address}/page",
        transfer_output_files="made",
        transfer_output_remaps=f'"made = site://{address}/made-{lab.level}"',
    )
    absent = ours.shell("true", transfer_input_files=f"site://{address}/absent")
    assert result(done).text == "of the web\n"
    assert lab.access_point("alice", f"cat {folder}/put_made-{lab.level}") == "mine\n"
    facts = absent.held().attributes
    assert facts["HoldReasonCode"] == INPUT_HOLD
    assert "using protocol site. Details: the site says: HTTP Error 404" in facts["HoldReason"]
