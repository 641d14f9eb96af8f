"""The `isa` fixture: runs a test on every kernel table of this build."""

from collections.abc import Iterator

import pytest

from intattention import _core


@pytest.fixture(params=_core.built_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Forces one table; a table this CPU cannot run is a visible skip."""
    name: str = request.param
    if name not in _core.available_isas():
        pytest.skip(f"kernel table {name} is built, but this CPU cannot run it")
    former = _core.active_isa()
    _core.use_isa(name)
    yield name
    _core.use_isa(former)
