"""What lies beside exported weights: config.json, vocabulary.json, and README.txt for whoever finds them."""

import json
from pathlib import Path
from typing import Any

import torch

from trilab import __version__, checkpoint
from trilab.report.runs import one_line
from trilab.trained import Trained


def write_card(trained: Trained, folder: Path, *, format: str, usage: str, difference: float | None) -> None:  # noqa: A002
    """Write the three files. No path of this machine is in them.

    Args:
        usage: how the exported file is read, for README.txt.
        difference: largest one between its logits and the model's; None if they were not compared.
    """
    _write_json(folder / "config.json", _described(trained, format))
    _write_json(
        folder / "vocabulary.json",
        [
            {"id": place, "character": character, "code_point": f"U+{ord(character):04X}"}
            for place, character in enumerate(trained.vocabulary.characters)
        ],
    )
    (folder / "README.txt").write_text(_readme(trained, format, usage, difference), encoding="utf-8")


def _described(trained: Trained, format: str) -> dict[str, Any]:  # noqa: A002
    """What the model is, and how far it was trained; not where."""
    own = checkpoint.load(trained.path, mapped=True)["trilab"]
    return {
        "trilab": __version__,
        "torch": torch.__version__,
        "format": format,
        "name": trained.config.name,
        "seed": trained.config.seed,
        "step": own["step"],
        "best": {key: value for key, value in own["best"].items() if isinstance(value, int | float)},
        "vocab_size": len(trained.vocabulary),
        "block_size": trained.model.block_size,
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "model": {key: value for key, value in trained.config.model.items() if key != "agg_per_layer"},
        "agg": trained.config.agg,
    }


def _write_json(path: Path, content: object) -> None:
    # ASCII: half of a surrogate pair, which a text may hold, has no UTF-8
    path.write_text(json.dumps(content, indent=1, ensure_ascii=True) + "\n", encoding="ascii")


def _readme(trained: Trained, format: str, usage: str, difference: float | None) -> str:  # noqa: A002
    size, vocab_size = trained.model.block_size, len(trained.vocabulary)
    compared = (
        "Not compared with trilab's own logits: onnxruntime is not installed where this was written."
        if difference is None
        else f"Its logits differ from trilab's own by {difference:.1e} at most, on texts of 1 to {size:,} characters."
    )
    return f"""\
A character-level language model ({one_line(trained.config.name)}), exported by trilab {__version__} as {format}.

Input   tokens  (batch, time) int64: ids of vocabulary.json, 0 ... {vocab_size - 1:,}; time from 1 to {size:,}
Output  logits  (batch, time, {vocab_size:,}) float32: of the character that follows each; softmax gives probabilities

It looks back on {size:,} characters at most: of a longer text give the last {size:,}.
vocabulary.json lists every id with its character and code point; config.json says what the model is made of.
{compared}

{usage.format(torch=torch.__version__)}"""
