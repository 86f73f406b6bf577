"""Start of a job: its arguments, its environment, its folder, its program.

Newlines are not among them: HTCondor's schedd refuses an attribute with one ("Received invalid attribute value").
"""

import pytest

from tests.e2e.pool import Pool, collect, result

ARGUMENTS = [
    "",
    " two  spaces ",
    "tab\there",
    "it's",
    'a "quote"',
    "back\\slash \\n \\",
    "$HOME ${HOME} $(HOME) `id`",
    "* ? [a] ~ ! # % & | ; < >",
    "grüße 雪 🐧",
    "-leading --dash=1",
    "a=b,c:d",
    "%s %d",
    "",
]

VARIABLES = {
    "EMPTY": "",
    "SPACES": " a  b ",
    "QUOTES": 'it\'s a "test"',
    "BACKSLASH": "\\ \\n C:\\dir\\",
    "DOLLAR": "$HOME $ ${x} $(id) `id`",
    "EQUALS": "a=b=c",
    "UNICODE": "grüße 雪 🐧",
    "SIGNS": "; | & * ? # ! ~ , :",
    "lower.dot-dash": "a strange name",
    "PATH": "/opt/mine:/usr/bin:/bin",
    "OMP_NUM_THREADS": "7",
    "RAYON_NUM_THREADS": "8",
    "GOMEMLIMIT": "off",
}


def _words(text: str) -> str:
    """One word of HTCondor's new syntax (arguments and environment in double quotes)."""
    # $$() and $() are the submit language's own; $(DOLLAR) is its word for a dollar.
    return "'" + text.replace("'", "''").replace('"', '""').replace("$", "$(DOLLAR)") + "'"


def test_arguments_and_environment_arrive_byte_for_byte(pool: Pool) -> None:
    # No shell between: busybox's own drops variables of strange names.
    arguments = pool.submit(
        {"executable": "/bin/printf", "arguments": f'"{" ".join(map(_words, ["[%s]", *ARGUMENTS]))}"'}
    )
    variables = pool.submit(
        {
            "executable": "/bin/cat",
            "arguments": "/proc/self/environ",
            "environment": '"' + " ".join(f"{name}={_words(value)}" for name, value in VARIABLES.items()) + '"',
            "getenv": "LOGNAME, SHELL",
        }
    )
    assert result(arguments).text == "".join(f"[{one}]" for one in ARGUMENTS)
    seen = dict(entry.split("=", 1) for entry in result(variables).text.split("\0")[:-1])
    expected = {**VARIABLES, "LOGNAME": "alice", "SHELL": "/bin/bash"}
    assert {name: seen.get(name) for name in expected} == expected


def test_programs_read_the_size_of_the_slot_in_their_environment(pool: Pool) -> None:
    script = "echo $GOMAXPROCS $OMP_NUM_THREADS $PYTHON_CPU_COUNT $MC_CORES $RAYON_NUM_THREADS $GOMEMLIMIT"
    done = result(pool.shell(script))
    memory = int(pool.of_slot("Memory"))
    assert done.text.split() == [pool.of_slot("Cpus").strip()] * 5 + [f"{memory * 9 // 10}MiB"]


def test_initialdir_is_where_files_come_from_and_go_to(pool: Pool) -> None:
    done = result(
        pool.shell(
            "cat data; echo made >made; pwd >&2",
            files={"below/data": "input\n"},
            initialdir="below",
            transfer_input_files="data",
            transfer_output_files="made",
            output="../out.0",
            error="../err.0",
            log="../job.log",
        )
    )
    assert (done.code, done.text) == (0, "input\n")
    assert done.files["below/made"] == b"made\n"


FINE = b"#!/bin/sh\necho fine\n"
PROGRAMS = {
    "argument.sh": (b"#!/bin/sh -e\nfalse\nexit 0\n", 1, ""),
    "crlf.sh": (b"#!/bin/sh\r\necho fine\r\n", 127, "convert it, for example with dos2unix"),
    "interpreter.sh": (
        b"#!/opt/absent/python\nprint()\n",
        127,
        "its interpreter '/opt/absent/python' is not in the image",
    ),
    # What no kernel runs goes to /bin/sh, as execvp(3) and Docker's own init have it.
    "other-machine": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00\x01" + bytes(100), 127, "other-machine"),
    "no-first-line": (b"echo fine\n", 0, ""),
    "empty": (b"", 0, ""),
    "-dash and späce.sh": (FINE, 0, ""),
}
"""Name of a program that is sent along -> its content, the exit code of its job, what its standard error says."""


def test_programs_that_run_and_programs_that_cannot(pool: Pool) -> None:
    # As input files: condor_submit itself refuses some of them as executables.
    names = list(PROGRAMS)
    jobs = pool.submit(
        {
            "executable": f"./$CHOICE(Process, {', '.join(names)})",
            "transfer_input_files": ", ".join(names),
        },
        files={name: content for name, (content, _, _) in PROGRAMS.items()},
        count=len(names),
    )
    ends = {name: jobs.ended(proc) for proc, name in enumerate(names)}
    seen = {}
    for name, event in ends.items():
        done = collect(jobs, event)
        seen[name] = (done.code, done.stderr.decode(errors="replace"))
    assert {name: code for name, (code, _) in seen.items()} == {name: code for name, (_, code, _) in PROGRAMS.items()}
    assert all(PROGRAMS[name][2] in words for name, (_, words) in seen.items()), seen


@pytest.mark.parametrize(
    ("executable", "code"),
    [("/bin/echo", 0), ("echo", 0), ("/etc/passwd", 126), ("absent", 127)],
)
def test_programs_of_the_image(pool: Pool, executable: str, code: int) -> None:
    done = result(
        pool.submit(
            {
                "container_image": pool.image("debian:forky"),
                "executable": executable,
                "arguments": "fine",
            }
        )
    )
    assert done.code == code, done.stderr
    assert done.text == ("fine\n" if code == 0 else "")
    assert code == 0 or executable.encode() in done.stderr
