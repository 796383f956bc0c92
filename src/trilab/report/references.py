"""What predictors reach that are not trained: the lines that every loss is to be seen against."""

from collections.abc import Iterable
from dataclasses import dataclass

from trilab.report.runs import Run, number, one_line


@dataclass(frozen=True)
class Reference:
    """One line, on one validation text."""

    name: str
    loss: float
    """Nats per character."""
    text: str
    """The validation text's name."""
    whole_context: bool = False
    """It looks back as far as it likes, where the models see their window only."""

    @property
    def is_baseline(self) -> bool:
        """Never: nothing is compared with it."""
        return False


def references(runs: Iterable[Run]) -> list[Reference]:
    """Of all texts and window sizes that the runs were validated on, each once; the highest loss first."""
    found: dict[Reference, None] = {}
    for run in runs:
        data, content = run.summary.get("data"), run.summary.get("references")
        if not isinstance(content, dict):
            continue
        text = one_line(str(data.get("name"))) if isinstance(data, dict) else ""
        for name, key in (("uniform", "uniform"), ("1-gram", "unigram"), ("true source", "source")):
            if (loss := number(content.get(key))) is not None:
                found[Reference(name, loss, text)] = None
        for key, whole in (("windowed", False), ("full", True)):
            orders = content.get(key)
            for order, value in orders.items() if isinstance(orders, dict) else ():
                if (loss := number(value)) is not None:
                    name = f"{one_line(str(order))}-gram"
                    found[Reference(f"{name}, whole past" if whole else name, loss, text, whole)] = None
    return sorted(found, key=lambda line: (-line.loss, line.name))
