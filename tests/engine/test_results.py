"""How jobs end."""

import pytest

from tests.engine.rings import Engine


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 255])
async def test_exit_code_is_the_jobs_own(engine: Engine, code: int) -> None:
    result = await engine.shell(engine.image("busybox"), f"exit {code}")
    assert (result.code, result.error) == (code, "")
