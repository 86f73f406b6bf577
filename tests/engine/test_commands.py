"""Arguments, environment, entrypoint, folder: what the job sees of its submit file."""

import pytest

from tests.engine.client import environment
from tests.engine.rings import SANDBOX, Engine, Simulated

AWKWARD = ["", " ", "a b", "'", '"', "\\", "$HOME `x`", "tab\tand\nnewline", "naïve ☃ 𝄞", "*", "-e", "=", "a=b"]


def variables(output: bytes) -> dict[str, str]:
    """The environment from the output of `env -0`."""
    return dict(one.split("=", 1) for one in output.decode().split("\0") if one)


ENV = ("sh", "-c", "cat /proc/self/environ")


async def test_arguments_arrive_as_they_are(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), 'printf "[%s]" "$@"', *AWKWARD)
    assert result.stdout.decode() == "".join(f"[{one}]" for one in AWKWARD)


async def test_an_argument_may_be_long(engine: Engine) -> None:
    long = "x" * 100_000
    result = await engine.shell(engine.image("busybox"), 'printf "%s%s" "$1" "$LONG"', long, Env=[f"LONG={long[::-1]}"])
    assert len(result.stdout) == 200_000


async def test_arguments_may_be_many(engine: Engine) -> None:
    many = [f"argument-{number}" for number in range(10_000)]
    result = await engine.shell(engine.image("busybox"), 'echo $#; eval "echo \\${$#}"', *many)
    assert result.stdout == b"10000\nargument-9999\n"


async def test_variables_arrive_as_they_are(engine: Engine) -> None:
    wanted = {f"AWKWARD_{number}": text for number, text in enumerate(AWKWARD)}
    result = await engine.run(engine.image("busybox"), *ENV, Env=environment(wanted))
    found = variables(result.stdout)
    assert {key: found.get(key) for key in wanted} == wanted


async def test_a_variable_without_a_value_is_taken_away(engine: Engine) -> None:
    kept = variables((await engine.run(engine.image("busybox"), *ENV)).stdout)
    removed = variables((await engine.run(engine.image("busybox"), *ENV, Env=environment({}, ["HOME"]))).stdout)
    assert "HOME" in kept
    assert "HOME" not in removed


async def test_a_variable_given_twice_has_its_last_value(engine: Engine) -> None:
    result = await engine.run(engine.image("busybox"), *ENV, Env=["TWICE=1", "TWICE=2", "PATH=/bin:/usr/bin"])
    assert variables(result.stdout)["TWICE"] == "2"
    assert result.stdout.count(b"\0PATH=") + result.stdout.startswith(b"PATH=") == 1


async def test_nothing_of_kubernetes_or_ours_is_in_the_environment(engine: Engine) -> None:
    result = await engine.run(engine.image("busybox"), *ENV)
    assert not [key for key in variables(result.stdout) if key.startswith(("KUBERNETES", "K8SPILOT"))]


async def test_the_jobs_path_finds_its_program(engine: Engine) -> None:
    tool = f"{SANDBOX}/tools/own-tool"
    script = f"mkdir -p {SANDBOX}/tools; printf '#!/bin/sh\\nexit 21\\n' > {tool}; chmod 755 {tool}"
    assert (await engine.shell(engine.image("busybox"), script)).code == 0
    result = await engine.run(engine.image("busybox"), "own-tool", Env=[f"PATH={SANDBOX}/tools:/bin"])
    assert result.code == 21


async def test_the_working_folder_is_the_one_asked_for(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), "pwd", WorkingDir=SANDBOX)
    assert result.stdout.decode() == f"{SANDBOX}\n"


async def test_without_a_working_folder_it_is_the_root(engine: Engine) -> None:
    assert (await engine.shell(engine.image("busybox"), "pwd")).stdout == b"/\n"


async def test_a_working_folder_that_is_not_there_is_told(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), "pwd", WorkingDir="/no/such/folder")
    assert result.code in (126, 127)
    assert b"/no/such/folder" in result.stderr


async def test_a_relative_program_is_looked_for_in_the_working_folder(engine: Engine) -> None:
    script = f"printf '#!/bin/sh\\necho ran in $PWD\\n' > {SANDBOX}/job.sh; chmod 755 {SANDBOX}/job.sh"
    assert (await engine.shell(engine.image("busybox"), script)).code == 0
    result = await engine.run(engine.image("busybox"), "./job.sh", WorkingDir=SANDBOX)
    assert result.stdout.decode() == f"ran in {SANDBOX}\n"


async def test_the_umask_is_the_usual(engine: Engine) -> None:
    assert (await engine.shell(engine.image("busybox"), "umask")).stdout.strip() in (b"0022", b"022")


async def test_a_given_entrypoint_is_put_before_the_command(engine: Engine) -> None:
    result = await engine.run(engine.image("busybox"), "given", Entrypoint=["printf", "%s-%s", "entry"])
    assert result.stdout == b"entry-given"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "command", "output"),
    [
        ({}, [], "image-entry image-command"),
        ({}, ["own"], "image-entry own"),
        ({"Entrypoint": ["/bin/echo", "own-entry"]}, [], "own-entry"),
        ({"Entrypoint": ["/bin/echo", "own-entry"]}, ["own"], "own-entry own"),
        ({"Entrypoint": "/bin/echo"}, ["own"], "own"),
    ],
)
async def test_entrypoint_and_command_go_together_as_docker_has_it(
    simulator: Simulated, options: dict[str, object], command: list[str], output: str
) -> None:
    image = simulator.cluster.images.add(
        "entry:1", entrypoint=["/bin/echo", "image-entry"], command=["image-command"]
    ).reference
    assert (await simulator.run(image, *command, **options)).stdout.decode().strip() == output


async def test_the_images_own_variables_and_folder_are_the_jobs(simulator: Simulated) -> None:
    image = simulator.cluster.images.add("own:1", environment={"OF_IMAGE": "yes", "OVER": "image"}, directory="/usr")
    result = await simulator.shell(image.reference, 'echo "$OF_IMAGE $OVER $PWD"', Env=["OVER=job"])
    assert result.stdout == b"yes job /usr\n"


async def test_an_image_that_puts_its_jobs_into_groups_runs_none(simulator: Simulated) -> None:
    image = simulator.cluster.images.add("groups:1", groups=[101]).reference
    answer = await simulator.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"]})
    assert answer.status == 500
    assert f"image {image} adds its jobs to other groups (101)" in answer.message
    assert (await simulator.run(simulator.image("busybox"), "id", "-G")).stdout.split() == [
        b"%d" % simulator.cluster.settings.payload_uid
    ]


async def test_an_image_without_a_command_needs_one(simulator: Simulated) -> None:
    image = simulator.cluster.images.add("nothing:1").reference
    answer = await simulator.ask("POST", "/containers/create", {"Image": image})
    assert answer.status == 409
    assert "no command" in answer.message
    assert (await simulator.run(image, "true")).code == 0
