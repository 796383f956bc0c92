"""What a run is called: the same for the same result, another for any key that may change it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from trilab.identity import WITHOUT_EFFECT, differences, run_name

from .test_config import changed, composed

TREE = composed("model=gpt", "agg=attention", "optim=cosine", "data=file", "data.path=notes.txt")


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}__")
        else:
            yield f"{prefix}{key}"


# these say where a run goes, what is shown, or how it is carried on; the text stands for how it is found and read
HARMLESS = (
    *("callbacks__", "check__", "ckpt", "experiment_name", "force", "label", "logger__", "paths__"),
    *("data__path", "data__encoding", "data__newline", "data__normalise", "data__separator", "data__prepared"),
    *("report__", "retry", "sweep__"),
    *("trainer__checkpoint_every", "trainer__checkpoint_minutes", "trainer__log_every", "trainer__timeout"),
)
LEAVES = list(leaves(TREE))


def name(tree: Mapping[str, Any] = TREE, text: str = "0" * 64) -> str:
    return run_name("attention", 3, tree, text)


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"


@pytest.mark.parametrize("key", LEAVES)
def test_a_key_changes_the_name_unless_it_cannot_change_the_result(key: str) -> None:
    place: Any = TREE
    for part in key.split("__", 1):
        place = place[part]
    harmless = key.startswith(HARMLESS)
    moved = changed(TREE, **{key: other(place)})
    assert (name(moved) == name()) == harmless
    assert bool(differences(TREE, moved)) != harmless


def test_every_key_without_effect_that_the_config_has_is_tried() -> None:
    there = {key.replace("__", ".") for key in LEAVES if key.startswith(HARMLESS)}
    tried = {key for key in WITHOUT_EFFECT if any(k == key or k.startswith(f"{key}.") for k in there)}
    assert tried == WITHOUT_EFFECT


def test_a_key_added_or_taken_away_changes_the_name() -> None:
    more = changed(TREE, agg__size=3)
    assert name(more) != name()
    assert differences(TREE, more) == ["agg.size was not set and is now 3"]
    assert differences(more, TREE) == ["agg.size was 3 and is now not set"]


def test_the_text_counts_and_not_where_it_lies() -> None:
    assert name(text="1" * 64) != name()
    assert name(changed(TREE, data__path="/elsewhere")) == name()


def test_1_and_1_0_are_one_value() -> None:
    for key, one, same in (("optim__lr", 1, 1.0), ("seed", 1337.0, 1337), ("agg__dropout", 0, 0.0), ("a", -0.0, 0)):
        assert name(changed(TREE, **{key: one})) == name(changed(TREE, **{key: same}))
        assert not differences(changed(TREE, **{key: one}), changed(TREE, **{key: same}))
    assert name(changed(TREE, optim__lr=1)) != name(changed(TREE, optim__lr=1.5))


def test_the_order_of_keys_does_not_matter() -> None:
    assert name(dict(reversed(TREE.items()))) == name()


def test_names_stay_the_same_over_processes_and_versions() -> None:
    assert run_name("softmax", 0, {"seed": 0, "optim": {"lr": 0.01}}, "abc") == "softmax-seed0-580eddf9"


def test_differences_are_told_in_words_key_by_key() -> None:
    was, now = {"a": 1, "b": {"c": 2, "d": 3}, "label": "x"}, {"a": 1.0, "b": {"c": 5, "d": 4}, "label": "y"}
    assert differences(was, now) == ["b.c was 2 and is now 5", "b.d was 3 and is now 4"]


@pytest.mark.parametrize(
    "label",
    ["a/b", "a\\b", "..", ".", "é漢🙂", "a=b", "k=1,l=2", "a b", "a:b*?<>|", "line\nend", "", "~", "$HOME", "x" * 1000],
)
def test_a_folder_s_name_is_flat_and_safe_on_every_file_system(label: str) -> None:
    found = run_name(label, 2**63 - 1, TREE, "0" * 64)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", found)
    assert len(found) <= 255
    assert re.search(r"-seed9223372036854775807-[0-9a-f]{8}$", found)
    assert found not in (".", "..")


def test_the_name_shows_strategy_and_seed() -> None:
    assert re.fullmatch(r"attention-seed3-[0-9a-f]{8}", name())


def test_a_tree_read_back_from_its_file_has_the_same_name() -> None:
    assert name(json.loads(json.dumps(TREE))) == name()
