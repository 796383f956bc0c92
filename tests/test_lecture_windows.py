"""The lecture's ladder against its own numbers: what the table rests on."""

from collections.abc import Callable

import pytest
import torch

from trilab.build import build_model
from trilab.checkpoint import load, model_weights
from trilab.config import read
from trilab.loss import mean_nats
from trilab.report.runs import read_run
from trilab.vocabulary import Vocabulary

from .conftest import ROOT, Outcome
from .lecture_windows import BEGIN, DRAWN, END, windows


def test_an_estimate_from_random_windows_strays_as_far_as_is_said(train: Callable[..., Outcome]) -> None:
    done = train("agg=none", "model=bigram", "trainer.max_steps=50", "check.causality=off")
    found = windows(read_run(done.run))
    content = load(done.run / "checkpoints" / "last.ckpt")
    config, vocabulary = read(content["trilab"]["config"]), Vocabulary(content["trilab"]["vocabulary"])
    model = build_model(config, len(vocabulary))
    model.load_state_dict(model_weights(content))
    text = (done.outputs.parent / "text.txt").read_text()
    val = torch.from_numpy(vocabulary.encode(text)).long()[int(0.9 * len(text)) :]
    generator = torch.Generator().manual_seed(0)
    estimates = []
    for _ in range(200):
        starts = torch.randint(len(val) - 8, (DRAWN // 100,), generator=generator)  # a hundredth: ten times as far
        rows = torch.stack([val[start : start + 9] for start in starts])
        estimates.append(mean_nats(model(rows[:, :-1]), rows[:, 1:]).item())
    drawn = torch.tensor(estimates)
    assert drawn.mean().item() == pytest.approx(found.mean, abs=4 * 10 * found.of_an_estimate / 200**0.5)
    assert drawn.std().item() == pytest.approx(10 * found.of_an_estimate, rel=0.2)


def test_the_page_has_a_place_for_the_table() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)
