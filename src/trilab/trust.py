"""Configs of foreign origin: which class paths in them may be imported."""

import importlib
import inspect
import re
import reprlib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from trilab.errors import BadInput
from trilab.report.runs import one_line

MOST_SAID = 100  # characters of a key's name, as somebody else has chosen it

# what may stand where, of ours
_OURS = {
    "agg": re.compile(r"trilab\.agg\.[a-z_]+\.[A-Z]\w*"),
    "model": re.compile(r"trilab\.model\.LanguageModel"),
    "optim": re.compile(r"trilab\.optim\.Optim"),
    "data": re.compile(r"trilab\.corpora\.[a-z_]+\.[a-z]\w*"),
}
_PER_LAYER = re.compile(r"model\.agg_per_layer\.\d+")


def refuse_foreign_code(tree: Mapping[str, Any], origin: str) -> None:
    """Refuse a config that names code which is not trilab's, or which is not meant for its place; imports none of it.

    Args:
        tree: a config as plain values, which came with a file.
        origin: what a message calls the file.
    Raises:
        BadInput: there is such a path; the message gives it, its place and what --trust does.
    """
    for where, path in _targets(tree):
        place = "agg" if _PER_LAYER.fullmatch(where) else where
        if place not in _OURS or not isinstance(path, str) or not _OURS[place].fullmatch(path):
            named = repr(path) if isinstance(path, str) else reprlib.repr(path)
            raise BadInput(
                f"{origin} names code that is not trilab's: {_shown(where)}._target_={named:.200}. To load it "
                "is to run that code, with all that you may do, from an installed package or from the folder you "
                "launch from. If you trust whoever made the file, add --trust."
            )
        if place == "data" and not _gives_a_text(path):
            raise BadInput(f"{origin} has {where}._target_={path:.200}, which is no source of texts in trilab.corpora.")


def _shown(where: str) -> str:
    said = one_line(where)
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…"


def _targets(tree: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every `_target_`, with the section that it stands in."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key == "_target_":
                yield ".".join(map(str, where)), value
            else:
                yield from _targets(value, (*where, key))
    elif isinstance(tree, list | tuple):
        for place, value in enumerate(tree):
            yield from _targets(value, (*where, place))


def _gives_a_text(path: str) -> bool:
    """Whether it is one of the functions that return a Corpus: its neighbours may write files or fetch them."""
    from trilab.corpus import Corpus

    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return False
    return inspect.isfunction(function) and typing.get_type_hints(function).get("return") is Corpus
