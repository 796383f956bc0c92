"""Text that the model writes: on the screen, in sample.txt, in the loggers."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from trilab.callbacks.showing import Showing
from trilab.generation.generate import generate
from trilab.init import seed_of
from trilab.learner import evaluating
from trilab.loggers import log_texts
from trilab.model import LanguageModel
from trilab.terminal import harmless
from trilab.vocabulary import Vocabulary

EARLY = 100  # characters of a sample amid the training, at most: on a tiny model each costs as long as half a step


class Samples(Showing):
    """Writes samples, the same for the same weights and seed; the one at the end to a file and the screen too.

    Args:
        vocabulary: ids → characters.
        count: characters to write at the end; before it EARLY of them are enough.
        seed: of the draws.
        path: the file that the last one goes to.
        console: where the last one is shown; None shows nothing.
        every, val_every: when, see `Showing`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        count: int,
        seed: int,
        path: Path,
        console: Console | None,
        every: int | None = None,
        val_every: int = 1,
    ) -> None:
        super().__init__(every=every, val_every=val_every)
        self.vocabulary = vocabulary
        self.count = count
        self.seed = seed
        self.path = path
        self.console = console
        self.texts: list[tuple[int, str]] = []

    def state_dict(self) -> dict[str, Any]:
        """Kept in checkpoints: a training that goes on has all samples up to there, and none from after."""
        return {"texts": list(self.texts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint's."""
        self.texts = [(step, text) for step, text in state_dict["texts"]]

    def show(self, model: LanguageModel, trainer: Trainer) -> None:
        """Write one."""
        step = trainer.global_step
        last = step >= trainer.max_steps
        text = self._written(model, self.count if last else min(self.count, EARLY))
        self.texts = [*(earlier for earlier in self.texts if earlier[0] < step), (step, text)]
        log_texts(trainer.loggers, "sample", self.texts, step)
        if not last:
            return
        self.path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        if self.console is not None:
            self.console.print(Panel(Text(harmless(text)), title="a sample", title_align="left"))

    def _written(self, model: LanguageModel, count: int) -> str:
        device = model.token_embedding_table.weight.device
        tokens = torch.from_numpy(self.vocabulary.encode(self.vocabulary.start)).long()[None].to(device)
        generator = torch.Generator().manual_seed(seed_of(self.seed, "sample"))
        with evaluating(model):
            written = generate(model, tokens, count, generator=generator)
        return self.vocabulary.decode(written[0, 1:].tolist())
