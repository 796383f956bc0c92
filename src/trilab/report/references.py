"""What predictors reach that are not trained: the lines that every loss is to be seen against."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trilab.report.runs import Run, number, one_line
from trilab.report.terms import Measure
from trilab.report.variants import JUDGED_ON, OF_WINDOWS, distinctions, settings


@dataclass(frozen=True)
class Reference:
    """One line, on one validation text."""

    name: str
    loss: float
    """Nats per character."""
    text: str
    """The text's name."""
    whole_context: bool = False
    """It looks back as far as it likes, where the models see their window only."""
    window: int | None = None
    """Characters of the windows that it reads; None where they make no difference."""
    is_source: bool = False
    """It is the process that wrote the text."""
    reads: int | None = None
    """Characters before the one that it guesses, at most; None where that is not known."""

    @property
    def is_baseline(self) -> bool:
        """Never: nothing is compared with it."""
        return False


# the split that a measure is of; of answers alone there are no lines
_OF_SPLIT: dict[Measure, str] = {
    "val_loss": "references",
    "best_val_loss": "references",
    "test_loss": "references_test",
}


def references(runs: Iterable[Run], measure: Measure) -> list[Reference]:
    """Of all texts and window sizes that the runs have this measure on, each once; the highest loss first."""
    split = _OF_SPLIT.get(measure, "")
    of_text: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if isinstance(run.summary.get(split), dict):
            told = settings(run)
            of_text[_text_name(run), *(told.get(key) for key in JUDGED_ON)].append(run)
    lines = [list(dict.fromkeys(line for run in same for line in _lines(run, split))) for same in of_text.values()]
    windows = {line.window for same in lines for line in same if line.window is not None}
    named = [
        replace(line, name="".join([line.name, _windows(line) if len(windows) > 1 else "", text]))
        for same, text in zip(lines, _told_apart(list(of_text.values())), strict=True)
        for line in same
    ]
    return sorted(named, key=lambda line: (-line.loss, line.name))


def _lines(run: Run, split: str) -> Iterator[Reference]:
    """Of one run, without what tells its text and windows from those of others."""
    content, text, cut = run.summary[split], _text_name(run), run.config.get("data")
    size = cut.get("block_size") if isinstance(cut, dict) else None
    window = size if isinstance(size, int) else None
    for name, key, reads in (("uniform", "uniform", 0), ("1-gram", "unigram", 0), ("true source", "source", None)):
        if (loss := number(content.get(key))) is not None:
            yield Reference(name, loss, text, is_source=key == "source", reads=reads)
    for key, whole in (("windowed", False), ("full", True)):
        orders = content.get(key)
        for order, value in orders.items() if isinstance(orders, dict) else ():
            if (loss := number(value)) is not None:
                name = f"{one_line(str(order))}-gram"
                reads = int(order) - 1 if len(str(order)) == 1 and str(order).isdecimal() else None
                if whole:
                    yield Reference(f"{name}, whole past", loss, text, whole_context=True, reads=reads)
                else:
                    yield Reference(name, loss, text, window=window, reads=reads)


def _text_name(run: Run) -> str:
    data = run.summary.get("data")
    return one_line(str(data.get("name"))) if isinstance(data, dict) else ""


def _windows(line: Reference) -> str:
    return "" if line.window is None else f", windows of {line.window}"


def _told_apart(of_text: Sequence[Sequence[Run]]) -> list[str]:
    """One for each text: " (copy, gap=8)", as much as tells it from the others; nothing where it is the only one.

    Args:
        of_text: the runs on each.
    """
    if len(of_text) < 2:
        return [""] * len(of_text)
    known = [_settings_of_text(same) for same in of_text]
    names = [_text_name(same[0]) for same in of_text]
    found = []
    for own, name in zip(known, names, strict=True):
        namesakes = [other for other, its_name in zip(known, names, strict=True) if its_name == name]
        parts = ", ".join(filter(None, [name, *distinctions(own, namesakes)]))
        found.append(f" ({parts})" if parts else "")
    return found


def _settings_of_text(runs: Iterable[Run]) -> dict[str, str]:
    """Settings of the text in which all runs on it agree."""
    first, *others = (settings(run).items() for run in runs)
    common = set(first).intersection(*others)
    return {key: value for key, value in sorted(common) if key.startswith("data.") and key not in OF_WINDOWS}
