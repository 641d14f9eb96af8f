"""CPU lists as the command line takes them."""

import pytest

from intattention import machine


def test_cpu_lists() -> None:
    assert machine.parse_cpus("4-7,0") == [4, 5, 6, 7, 0]
    assert machine.parse_cpus(" 3 ") == [3]
    assert machine.format_cpus([7, 0, 5, 4, 6]) == "0,4-7"
    assert machine.format_cpus([]) == ""


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,1", "0-5,3", "0-99999", "1,,2"])
def test_bad_cpu_lists(text: str) -> None:
    with pytest.raises(ValueError, match="CPU list"):
        machine.parse_cpus(text)
