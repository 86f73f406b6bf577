"""Files that go to a job and come back: trees, names, modes, links, URLs, and what a hostile job makes of them."""

import secrets
import shlex
from collections.abc import Iterator

import pytest

from lab.jobs import Jobs
from tests.e2e.pool import Pool, result, until

OUTPUT_HOLD = 12
"""CONDOR_HOLD_CODE::TransferOutputError (UploadFileError)."""

INPUT_HOLD = 13
"""TransferInputError (DownloadFileError)."""

TREE = {
    "tree/one/a": "a\n",
    "tree/one/two/b": "b\n",
    "tree/.hidden": "hidden\n",
    "tree/empty": "",
    "flat/c": "c\n",
    "single": "single\n",
}

LISTING = "find . -type f ! -name '.*' ! -name '_condor*' ! -name job.sh ! -name 'docker_*' | sort"


def test_input_and_output_trees(pool: Pool) -> None:
    kept = pool.shell(
        f"{LISTING}; mkdir -p new/deep new/void; echo x >new/deep/x; : >new/nothing",
        files=TREE,
        transfer_input_files="tree, tree/one/two, flat/, single",
        transfer_output_files="new, tree/one",
    )
    relative = pool.shell(
        f"{LISTING}; mkdir -p new/deep; echo x >new/deep/x",
        files=TREE,
        transfer_input_files="tree/one/a, tree/one/two, single",
        transfer_output_files="new/deep/x, tree/one/two",
        preserve_relative_paths="true",
    )
    done = result(kept)
    assert done.text.split() == ["./c", "./single", "./tree/empty", "./tree/one/a", "./tree/one/two/b", "./two/b"]
    assert {"new/deep/x", "new/nothing", "one/a", "one/two/b"} <= set(done.files)
    assert done.files["new/nothing"] == b""
    assert "new/void" in _folders(kept)
    done = result(relative)
    assert done.text.split() == ["./single", "./tree/one/a", "./tree/one/two/b"]
    assert done.files["new/deep/x"] == b"x\n"


def test_outputs_under_other_names_and_in_other_folders(pool: Pool) -> None:
    jobs = pool.shell(
        "mkdir -p d; echo 1 >one; echo 2 >d/two; echo out; echo err >&2",
        files={"logs/keep": ""},
        transfer_output_files="one, d/two",
        transfer_output_remaps='"one = results/first; two = made/deep/second=2"',
        output="logs/out.$(Process)",
        error="logs/err.$(Process)",
    )
    jobs.ended()
    files = jobs.files()
    names = ("results/first", "made/deep/second=2", "logs/out.0", "logs/err.0")
    assert [files.get(name) for name in names] == [b"1\n", b"2\n", b"out\n", b"err\n"]


ODD = ["with space", "new\nline", "grüße 雪", "-rf", "quote'\"", "back\\slash", "semi;colon,comma", "*?[x]", "$HOME"]


def test_files_of_odd_names_and_thousands_of_files(pool: Pool) -> None:
    script = "mkdir -p tree/many; cd tree; for i in $(seq 1000); do echo $i >many/$i; done\n"
    for name in ODD:
        file, folder = shlex.quote(f"./{name}"), shlex.quote(f"./folder {name}")
        script += f"printf x >{file}; mkdir {folder}; printf y >{folder}/file\n"
    done = result(pool.shell(script, transfer_output_files="tree"))
    assert done.code == 0, done.stderr
    expected = {f"tree/{name}": b"x" for name in ODD} | {f"tree/folder {name}/file": b"y" for name in ODD}
    expected |= {f"tree/many/{number}": b"%d\n" % number for number in range(1, 1001)}
    assert {name: content for name, content in done.files.items() if name.startswith("tree/")} == expected


def test_links_in_outputs(pool: Pool) -> None:
    done = result(
        pool.shell(
            "mkdir -p tree/folder; echo x >tree/folder/file; cd tree; ln -s folder/file inside",
            transfer_output_files="tree",
        )
    )
    assert done.files["tree/folder/file"] == b"x\n"
    assert done.files["tree/inside"] == b"x\n"


SECRETS = ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/proc/1/environ"]


def test_a_link_is_no_way_to_what_the_pilot_alone_may_read(pool: Pool) -> None:
    jobs = pool.shell(
        f"set -- $1 {' '.join(SECRETS)}; shift $(($1 + 1)); mkdir tree; ln -s $1 tree/stolen; ln -s $1 stolen",
        count=len(SECRETS),
        transfer_output_files="stolen, tree",
    )
    for proc in range(len(SECRETS)):
        facts = jobs.held(proc).attributes
        assert (facts["HoldReasonCode"], "Permission denied" in facts["HoldReason"]) == (OUTPUT_HOLD, True), facts
    assert not [name for name, content in jobs.files().items() if "stolen" in name and content]


def test_a_huge_sparse_file_comes_back(pool: Pool) -> None:
    size = 256 * 1024 * 1024
    jobs = pool.shell(
        f"truncate -s {size} huge; printf end | dd of=huge bs=1 seek={size - 3} conv=notrunc 2>/dev/null",
        transfer_output_files="huge",
    )
    jobs.ended(timeout=100)
    where = f"{jobs.folder}/huge"
    answer = pool.lab.access_point("alice", f"stat -c %s {where}; tail -c 4 {where} | od -An -c; rm {where}")
    assert answer.split() == [str(size), "\\0", "e", "n", "d"]


LOCK = """
mkdir -p file folder/locked/deep left/locked/deep
echo x >file/x; echo x >folder/locked/deep/x; echo x >left/locked/deep/x
chmod 000 file/x folder/locked/deep folder/locked left/locked/deep left/locked left
"""


def test_what_locks_everybody_out_does_not_outlive_its_job(pool: Pool) -> None:
    jobs = pool.shell(LOCK, count=2, transfer_output_files="$CHOICE(Process, job.sh, folder)")
    assert [jobs.ended(proc).attributes["ReturnValue"] for proc in range(2)] == [0, 0]
    assert result(pool.shell("echo next", user="bob")).text == "next\n"
    until(lambda: pool.inside("ls -A /var/lib/condor/execute/slot") == "", "nothing is left of them")


def test_outputs_come_back_whatever_their_modes(pool: Pool) -> None:
    jobs = pool.shell(LOCK, count=2, transfer_output_files="$CHOICE(Process, file, folder)")
    jobs.ended(0)
    jobs.ended(1)
    files = jobs.files()
    assert (files.get("file/x"), files.get("folder/locked/deep/x")) == (b"x\n", b"x\n")


def test_an_output_that_is_not_there_is_a_hold_that_names_it(pool: Pool) -> None:
    facts = pool.shell("true", transfer_output_files="absent").held().attributes
    assert facts["HoldReasonCode"] == OUTPUT_HOLD
    assert "absent" in facts["HoldReason"]
    assert "No such file" in facts["HoldReason"]


SERVER = """
import http.server, socket, threading
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self):
        with open("put" + self.path.replace("/", "_"), "wb") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.end_headers()
server = http.server.ThreadingHTTPServer(("", 0), Handler)
threading.Timer(600, server.shutdown).start()
address = f"{socket.gethostbyname(socket.gethostname())}:{server.server_port}"
print(address, flush=True)
server.serve_forever()
"""
"""A web server beside the users' files, for ten minutes at most. Says its address."""


@pytest.fixture
def web(pool: Pool) -> Iterator[tuple[str, str]]:
    """Address of a web server on the access point, and the folder in alice's home that it serves."""
    folder = f"web-{secrets.token_hex(4)}"
    pool.lab.access_point("alice", f"mkdir {folder}; echo of the web >{folder}/page")
    start = f"cd {folder}; setsid python3 -c {shlex.quote(SERVER)} >address 2>log </dev/null & echo $!"
    process = pool.lab.access_point("alice", start).strip()
    look = f"cat {folder}/address 2>/dev/null; true"
    yield until(lambda: pool.lab.access_point("alice", look).strip(), "the server runs"), folder
    pool.lab.access_point("alice", f"kill {process}; rm -r {folder}")


def test_inputs_from_urls_and_outputs_to_one(pool: Pool, web: tuple[str, str]) -> None:
    address, folder = web
    jobs = pool.shell(
        "cat page; echo mine >made; echo also >stays",
        transfer_input_files=f"http://{address}/page",
        transfer_output_files="made, stays",
        transfer_output_remaps=f'"made = http://{address}/made"',
    )
    absent = pool.shell("true", transfer_input_files=f"http://{address}/absent")
    done = result(jobs)
    assert (done.text, done.files["stays"], done.files.get("made")) == ("of the web\n", b"also\n", None)
    assert pool.lab.access_point("alice", f"cat {folder}/put_made") == "mine\n"
    facts = absent.held().attributes
    assert facts["HoldReasonCode"] == INPUT_HOLD
    assert "404" in facts["HoldReason"]


def test_a_file_url_is_a_file_of_the_execution_point_which_gives_no_secret_away(pool: Pool) -> None:
    public = pool.shell("cat issue", transfer_input_files="file:///etc/issue")
    secret = pool.shell("cat token", transfer_input_files=f"file://{SECRETS[0]}")
    assert "Debian" in result(public).text
    facts = secret.held().attributes
    assert facts["HoldReasonCode"] == INPUT_HOLD, facts
    assert secret.files().get("out.0", b"") == b""


def _folders(jobs: Jobs) -> list[str]:
    """The folders that came back."""
    found = jobs.lab.access_point(jobs.user, f"cd {jobs.folder} && find . -type d")
    return [line.removeprefix("./") for line in found.splitlines()]
