"""Exit codes, output, files: what comes back of a job."""

import pytest

from tests.e2e.pool import Pool, result


@pytest.mark.quick
def test_exit_codes_are_the_jobs_own(pool: Pool) -> None:
    codes = [0, 7, 126, 127]
    jobs = pool.shell(f"set -- $1 {' '.join(map(str, codes))}; shift $(($1 + 1)); exit $1", count=len(codes))
    assert [jobs.ended(proc).attributes["ReturnValue"] for proc in range(len(codes))] == codes


def test_a_program_that_is_not_there_is_127_and_says_so(pool: Pool) -> None:
    done = result(pool.submit({"executable": "/opt/absent/program"}))
    assert done.code == 127
    assert b"/opt/absent/program" in done.stderr


def test_a_file_that_is_no_program_is_126_and_says_so(pool: Pool) -> None:
    done = result(pool.submit({"executable": "/etc"}))
    assert done.code == 126
    assert b"/etc" in done.stderr


@pytest.mark.quick
def test_output_and_errors_come_back_apart_and_whole(pool: Pool) -> None:
    script = """
    i=0; while [ $i -lt 20000 ]; do echo "line $i of the output"; echo "line $i of the errors" >&2; i=$((i + 1)); done
    printf 'no newline \\000 at the end'; printf '\\377\\376' >&2
    """
    done = result(pool.shell(script))
    lines = range(20000)
    assert done.stdout == b"".join(b"line %d of the output\n" % i for i in lines) + b"no newline \0 at the end"
    assert done.stderr == b"".join(b"line %d of the errors\n" % i for i in lines) + b"\xff\xfe"


@pytest.mark.quick
def test_files_go_in_and_come_back(pool: Pool) -> None:
    script = """
    set -e
    mkdir -p tree/leaf; cp input.bin tree/copy.bin; echo deep > tree/leaf/file; ln -s copy.bin tree/link
    chmod 700 tree/leaf; cat text/umlaut.txt > new.txt
    """
    binary = bytes(range(256)) * 4096
    done = result(
        pool.shell(
            script,
            files={"input.bin": binary, "text/umlaut.txt": "grüß dich\n"},
            transfer_input_files="input.bin, text",
            transfer_output_files="tree, new.txt",
        )
    )
    assert done.code == 0, done.stderr
    assert done.files["tree/copy.bin"] == binary
    assert done.files["tree/leaf/file"] == b"deep\n"
    assert done.files["new.txt"].decode() == "grüß dich\n"


def test_new_files_come_back_without_being_named(pool: Pool) -> None:
    done = result(
        pool.submit(
            {
                "executable": "/bin/touch",
                "arguments": "made",
                "transfer_output_files": "",
            }
        )
    )
    assert done.files["made"] == b""


@pytest.mark.quick
def test_arguments_and_environment_arrive_as_written(pool: Pool) -> None:
    script = 'printf "[%s]\\n" "$@"; printf "<%s>\\n" "$PLAIN" "$QUOTED" "$UNICODE" "$EMPTY" "${ABSENT-absent}"'
    done = result(
        pool.shell(
            script,
            arguments="\"one 'two words' 'it''s' 'a \"\"quote\"\"' '' '$HOME *' '\\n' grüße\"",
            environment="\"PLAIN=value QUOTED='it''s a \"\"test\"\"' UNICODE='€ 100' EMPTY=''\"",
        )
    )
    arguments = ["one", "two words", "it's", 'a "quote"', "", "$HOME *", "\\n", "grüße"]
    variables = ["value", 'it\'s a "test"', "€ 100", "", "absent"]
    assert done.text.splitlines() == [f"[{one}]" for one in arguments] + [f"<{one}>" for one in variables]


def test_the_job_runs_in_its_scratch_folder_with_htcondors_variables(pool: Pool) -> None:
    done = result(pool.shell("pwd; echo $_CONDOR_SCRATCH_DIR; id -u; ls -a $_CONDOR_JOB_AD; env | grep -c KUBERNETES_"))
    directory, scratch, uid, ad, leaked = done.text.splitlines()
    assert directory == scratch
    assert (uid, leaked) == ("65534", "0")
    assert ad.startswith(scratch)
