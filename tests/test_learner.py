"""What Lightning trains: losses, the rate of each step, validation sums, and what a checkpoint is told."""

import json
import math
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from trilab.agg.attention import SelfAttention
from trilab.corpus import Corpus
from trilab.datamodule import CharData
from trilab.learner import Diverged, Learner, evaluating
from trilab.loggers import MetricsFile
from trilab.loss import mean_nats
from trilab.metrics import LossByBlock
from trilab.model import LanguageModel
from trilab.optim import Optim, lr_factor

TEXT = "".join(chr(97 + (i * i + i // 7) % 11) for i in range(600))

# Lightning's own words on choices made on purpose (see run.py)
QUIET = [
    pytest.mark.filterwarnings(f"ignore:.*{words}.*")
    for words in ("does not have many workers", "LeafSpec", "not empty", "srun")
]
pytestmark = QUIET


def data(accumulate: int = 1, max_steps: int = 5, answers: str | None = None) -> CharData:
    sizes = {"block_size": 8, "batch_size": 12, "val_share": 0.2, "test_share": 0.0, "val_chars": 24}
    corpus = Corpus.of("t", TEXT, "t")
    if answers is not None:
        corpus = replace(corpus, answers=np.array([c in answers for c in TEXT]))
    return CharData(corpus, seed=3, max_steps=max_steps, accumulate=accumulate, **sizes)  # type: ignore[arg-type]


def learner(
    model: LanguageModel | None = None, *, seed: int = 3, max_steps: int = 5, dropout: float = 0.0, **optim: Any
) -> Learner:
    model = model or LanguageModel(11, 8, SelfAttention, n_embd=8, dropout=dropout)
    return Learner(
        model,
        Optim(**optim),
        seed=seed,
        max_steps=max_steps,
        description={"version": 1, "config": {}},
        by_block=LossByBlock(480, 16, 8),
    )


def fit(
    module: Learner,
    callbacks: Iterable[Callback] = (),
    *,
    accumulate: int = 1,
    val_every: int = 0,
    resume: Path | None = None,
    loggers: Any = False,
    answers: str | None = None,
) -> Trainer:
    """Train to the end; val_every=0 never validates."""
    trainer = Trainer(
        accelerator="cpu",
        max_steps=module.max_steps,
        max_epochs=-1,
        accumulate_grad_batches=accumulate,
        val_check_interval=val_every * accumulate or None,
        limit_val_batches=1.0 if val_every else 0,
        check_val_every_n_epoch=None if val_every else 1,
        num_sanity_val_steps=0,
        callbacks=list(callbacks),
        logger=loggers,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    given = data(accumulate, module.max_steps, answers)
    trainer.fit(module, datamodule=given, ckpt_path=resume, weights_only=True)
    return trainer


class Poisoned(LanguageModel):
    """Its logits are `poison` from training call number `since` on, in evaluation always if `since` is 0."""

    since = 1
    poison = math.nan

    def __init__(self) -> None:
        super().__init__(11, 8, SelfAttention, n_embd=8)
        self.calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += self.training
        spoiled = self.calls >= self.since if self.training else self.since == 0
        return super().forward(tokens) * (self.poison if spoiled else 1.0)


def poisoned(since: int, poison: float = math.nan) -> Poisoned:
    model = Poisoned()
    model.since, model.poison = since, poison
    return model


class Raised(LanguageModel):
    """In evaluation all logits are 0 but the first, which is `height`: the higher above 0, the larger the loss."""

    height = 0.0

    def __init__(self) -> None:
        super().__init__(11, 8, SelfAttention, n_embd=8)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        if not self.training:
            logits = torch.zeros_like(logits)
            logits[..., 0] = self.height
        return logits


class Heights(Callback):
    """Gives each validation its height."""

    def __init__(self, *heights: float) -> None:
        self.heights = iter(heights)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module.model, Raised)
        pl_module.model.height = next(self.heights)


@pytest.mark.parametrize(("since", "accumulate", "step"), [(1, 1, 1), (3, 1, 3), (5, 2, 3), (6, 2, 3), (7, 3, 3)])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_the_first_step_whose_loss_is_not_finite_is_named_however_late_somebody_looks(
    since: int, accumulate: int, step: int, poison: float
) -> None:
    module = learner(poisoned(since, poison), lr=1e-3)
    fit(module, accumulate=accumulate)
    with pytest.raises(Diverged, match=rf"became nan at step {step}\. Lower optim\.lr \(now 0\.001\)"):
        module.drain_losses()


def test_no_checkpoint_is_written_from_a_training_that_has_diverged(tmp_path: Path) -> None:
    trainer = fit(learner(poisoned(4)))
    with pytest.raises(Diverged, match="not finite at step 4; no checkpoint is written"):
        trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert not list(tmp_path.iterdir())


def test_a_validation_loss_that_is_not_finite_ends_the_training_and_is_never_the_best() -> None:
    module = learner(poisoned(0))
    with pytest.raises(Diverged, match="validation loss is nan after step 2"):
        fit(module, val_every=2)
    assert module.best_val_loss == math.inf
    assert module.best_step == 0


def test_losses_drain_as_the_mean_since_the_last_look() -> None:
    means: list[float] = []

    class Look(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
            assert isinstance(pl_module, Learner)
            each.append(pl_module._losses[-1].item())
            if trainer.global_step in (2, 5):
                means.append(pl_module.drain_losses())

    each: list[float] = []
    module = learner()
    assert math.isnan(module.drain_losses())
    fit(module, [Look()])
    assert means == [pytest.approx(sum(each[:2]) / 2), pytest.approx(sum(each[2:]) / 3)]
    assert math.isnan(module.drain_losses())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_step_is_taken_at_its_own_rate(accumulate: int) -> None:
    rates: list[float] = []

    class Rates(Callback):
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            if trainer.global_step > len(rates):
                rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    module = learner(lr=0.01, schedule="cosine", warmup_steps=2, min_lr_ratio=0.1)
    fit(module, [Rates()], accumulate=accumulate)
    assert rates == pytest.approx([0.01 * lr_factor(step, module.optim, 5) for step in range(5)])
    assert rates[-1] == pytest.approx(0.001)


def test_accumulated_micro_steps_learn_what_one_step_learns() -> None:
    ends = []
    for accumulate in (1, 3):
        module = learner()
        fit(module, accumulate=accumulate)
        ends.append(module.state_dict())
    assert all(torch.allclose(ends[0][name], ends[1][name], atol=1e-5) for name in ends[0])


@pytest.mark.parametrize("norm", [0.0, 0.5, 1 - 2e-6, 1 - 1e-6, 1 - 5e-7, 1.0, 1.5, math.inf, math.nan])
def test_gradients_are_clipped_to_the_bits_that_torch_clips_them_to(norm: float) -> None:
    module = learner(grad_clip=1.0)
    parameters = list(module.parameters())

    def clipped(clip: Callable[[], Any]) -> list[Tensor]:
        for parameter in parameters[1:]:
            parameter.grad = torch.zeros_like(parameter)
        parameters[-1].grad = torch.full_like(parameters[-1], norm / math.sqrt(parameters[-1].numel()))
        clip()
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    ours = clipped(lambda: module.configure_gradient_clipping(torch.optim.SGD(parameters), 1.0))
    theirs = clipped(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
    assert all(
        torch.equal(one.view(torch.int32), other.view(torch.int32)) for one, other in zip(ours, theirs, strict=True)
    )


def test_dropout_is_drawn_from_the_run_s_seed_and_not_from_the_global_random_state() -> None:
    def end(seed: int, state: int) -> Tensor:
        torch.manual_seed(state)
        module = learner(seed=seed, dropout=0.5)
        fit(module)
        return module.model.lm_head.weight.detach()

    first = end(3, 0)
    assert torch.equal(first, end(3, 1))
    assert not torch.equal(first, end(4, 0))


def test_every_micro_step_drops_something_else() -> None:
    masks = []

    class Watched(LanguageModel):
        def forward(self, tokens: Tensor) -> Tensor:
            masks.append(torch.rand(8))
            return super().forward(tokens)

    fit(learner(Watched(11, 8, SelfAttention, n_embd=8)), accumulate=2)
    assert len({tuple(mask.tolist()) for mask in masks}) == 10


def test_validation_measures_the_whole_split_at_once_without_dropout() -> None:
    module = learner(dropout=0.5)
    fit(module, val_every=1)
    tokens = data().tokens.long()
    loss = 0.0
    with evaluating(module), torch.no_grad():
        for begin in range(480, 599, 8):  # the last fifth of 600, windows of 8 side by side, the last one of 7
            window = tokens[begin : begin + 9]
            loss += (len(window) - 1) * mean_nats(module.model(window[None, :-1]), window[None, 1:]).item()
    assert module.val_loss == pytest.approx(loss / 119, rel=1e-6)


def test_the_loss_and_the_accuracy_of_answers_are_measured_by_themselves(tmp_path: Path) -> None:
    module = learner()
    with closing(MetricsFile(tmp_path / "metrics.jsonl", 0)) as metrics:
        fit(module, val_every=5, answers="ad", loggers=[metrics])
    tokens = data().tokens.long()
    nats, right = [], []
    with evaluating(module), torch.no_grad():
        for begin in range(480, 599, 8):
            window = tokens[begin : begin + 9]
            logits = module.model(window[None, :-1])[0]
            for place, target in enumerate(window[1:]):
                if TEXT[begin + 1 + place] in "ad":
                    nats.append(-logits[place].log_softmax(0)[target].item())
                    right.append(bool(logits[place].argmax() == target))
    assert 0 < len(nats) < 119
    assert module.answers == {
        "answer_loss": pytest.approx(sum(nats) / len(nats), rel=1e-5),
        "answer_accuracy": sum(right) / len(right),
    }
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert {name: row[f"val/{name}"] for name in module.answers} == module.answers


@pytest.mark.parametrize("answers", [None, "z"])
def test_where_nothing_is_asked_nothing_is_told_of_answers(tmp_path: Path, answers: str | None) -> None:
    module = learner()
    with closing(MetricsFile(tmp_path / "metrics.jsonl", 0)) as metrics:
        fit(module, val_every=5, answers=answers, loggers=[metrics])
    assert module.answers == {}
    assert "answer" not in (tmp_path / "metrics.jsonl").read_text()


def test_answers_change_nothing_else() -> None:
    ends = []
    for answers in (None, "ad"):
        module = learner(dropout=0.5)
        fit(module, val_every=5, answers=answers)
        ends.append((module.val_loss, module.loss_by_block, module.state_dict()))
    assert ends[0][:2] == ends[1][:2]
    assert all(torch.equal(ends[0][2][name], ends[1][2][name]) for name in ends[0][2])


def test_the_best_loss_and_its_step_are_remembered_and_go_into_the_checkpoint(tmp_path: Path) -> None:
    seen: dict[int, float] = {}

    class Seen(Callback):
        def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            assert isinstance(pl_module, Learner)
            seen[trainer.global_step] = pl_module.val_loss

    module = learner(Raised(), max_steps=10)
    trainer = fit(module, [Heights(3, 2, 4, 1, 5), Seen()], val_every=2)
    assert list(seen) == [2, 4, 6, 8, 10]
    assert (module.best_step, module.best_val_loss) == (8, min(seen.values()))
    assert module.val_loss == seen[10] == max(seen.values())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    said = torch.load(tmp_path / "x.ckpt", weights_only=True)["trilab"]
    assert said["seconds"] > 0
    kept = {name: said[name] for name in ("version", "config", "step", "best")}
    assert kept == {"version": 1, "config": {}, "step": 10, "best": {"val_loss": seen[8], "step": 8}}


def test_losses_that_nobody_has_looked_at_go_into_the_checkpoint_and_come_back(tmp_path: Path) -> None:
    module = learner()
    fit(module).save_checkpoint(tmp_path / "x.ckpt")
    again = learner(max_steps=7)
    fit(again, resume=tmp_path / "x.ckpt")
    whole = learner(max_steps=7)
    fit(whole)
    assert again.drain_losses() == whole.drain_losses()


def test_a_resumed_training_still_knows_the_best_before_it(tmp_path: Path) -> None:
    module = learner()
    trainer = fit(module, val_every=5)
    module.best_val_loss, module.best_step = 0.5, 4
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    rest = learner(max_steps=8)
    fit(rest, val_every=4, resume=tmp_path / "x.ckpt")
    assert rest.global_step == 8
    assert (rest.best_val_loss, rest.best_step) == (0.5, 4)
    assert rest.val_loss > 0.5


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_gives_the_mode_back_also_after_an_exception(training: bool) -> None:
    module = torch.nn.Dropout().train(training)
    with evaluating(module):
        assert not module.training
    assert module.training is training
    with pytest.raises(RuntimeError, match="on purpose"), evaluating(module):
        raise RuntimeError("on purpose")
    assert module.training is training


def test_attributes_are_set_as_on_any_module() -> None:
    module = learner()
    module.note = "a"  # type: ignore[assignment]
    module.note = "b"  # type: ignore[assignment]
    assert module.note == "b"
    module.note = nn.Linear(1, 1)
    assert "note" in dict(module.named_children())
    with pytest.raises(TypeError, match="cannot assign 'str'"):
        module.note = "c"  # type: ignore[assignment]
