"""What predictors reach that are not trained: the lines that every loss is to be seen against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trilab.report.runs import Run, number, one_line
from trilab.report.terms import Measure


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
    found: dict[Reference, None] = {}
    for run in runs:
        data, content = run.summary.get("data"), run.summary.get(_OF_SPLIT.get(measure, ""))
        if not isinstance(content, dict):
            continue
        text = one_line(str(data.get("name"))) if isinstance(data, dict) else ""
        cut = run.config.get("data")
        size = cut.get("block_size") if isinstance(cut, dict) else None
        window = size if isinstance(size, int) else None
        for name, key in (("uniform", "uniform"), ("1-gram", "unigram"), ("true source", "source")):
            if (loss := number(content.get(key))) is not None:
                found[Reference(name, loss, text, is_source=key == "source")] = None
        for key, whole in (("windowed", False), ("full", True)):
            orders = content.get(key)
            for order, value in orders.items() if isinstance(orders, dict) else ():
                if (loss := number(value)) is not None:
                    name = f"{one_line(str(order))}-gram"
                    line = (
                        Reference(f"{name}, whole past", loss, text, whole_context=True)
                        if whole
                        else Reference(name, loss, text, window=window)
                    )
                    found[line] = None
    return sorted(_told_apart(list(found)), key=lambda line: (-line.loss, line.name))


def _told_apart(lines: Sequence[Reference]) -> list[Reference]:
    """Names with the text and the window, where there are several of them."""
    texts, windows = {line.text for line in lines}, {line.window for line in lines if line.window is not None}
    named = []
    for line in lines:
        window = f", windows of {line.window}" if len(windows) > 1 and line.window is not None else ""
        text = f" ({line.text})" if len(texts) > 1 and line.text else ""
        named.append(replace(line, name=f"{line.name}{window}{text}"))
    return named
