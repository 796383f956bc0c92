"""Any value passes through Hydra's grammar and through interpolation as what it is."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from trilab.errors import BadInput
from trilab.override import override

PARSER = OverridesParser.create()


def taken(value: str) -> object:
    """What a configuration holds that was given this value."""
    return OmegaConf.create({"path": PARSER.parse_override(override("data.path", value)).value()}).path


VALUES = [
    *("notes.txt", "my notes.txt", "it's", 'say "hi"', "a,b", "a=b", "(a)", "[a]*.txt", "{a}", "$HOME", "${seed}"),
    *("漢🙂", "a\\", 'a\\"b', "123", "1e5", "null", "True", "~/x", "C:\\x y\\", "#", "a;b", "", " "),
    *("1_000", "1_0.5", "inf", "NaN", "-inf", "+1", "a\\${b}", "\\\\${b}", "${", "$${a}", "???.txt", "./???", "0x1"),
    *(".0", ".0e1", "..", ".", "../x", ".e1", "_1", "-", "--"),
]


@pytest.mark.parametrize("value", VALUES)
def test_values_that_hydra_has_its_own_ideas_of(value):
    assert taken(value) == value


@given(
    st.lists(
        st.sampled_from(
            [*"ab01_.-+/e ", "\\", '"', "'", "${", "}", "$", ":", ",", "inf", "nan", "null", "?", "漢", "\t"]
        ),
        max_size=12,
    ).map("".join)
)
@example("a\\")
def test_any_value(value):
    if value != "???":
        assert taken(value) == value


def test_what_stands_for_a_missing_value_is_refused_with_another_name():
    with pytest.raises(BadInput, match=r"data\.path=\?\?\? is how .* \./\?\?\?"):
        override("data.path", "???")
