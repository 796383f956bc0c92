"""Text that the trained model writes: on the screen, in sample.txt, in the loggers."""

from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from trilab.generate import generate
from trilab.init import seed_of
from trilab.learner import Learner, evaluating
from trilab.tracking import log_text
from trilab.vocabulary import Vocabulary


class Samples(Callback):
    """Writes one sample at the end of training, the same for the same weights and seed.

    Args:
        vocabulary: ids → characters.
        count: characters to write.
        seed: of the draws.
        path: the file it goes to.
        console: where it is shown; None shows nothing.
    """

    def __init__(self, vocabulary: Vocabulary, *, count: int, seed: int, path: Path, console: Console | None) -> None:
        self.vocabulary = vocabulary
        self.count = count
        self.seed = seed
        self.path = path
        self.console = console

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write it."""
        assert isinstance(pl_module, Learner)
        model = pl_module.whole_model()
        if model is None or not trainer.is_global_zero:
            return
        device = model.token_embedding_table.weight.device
        tokens = self.vocabulary.encode(self.vocabulary.start).long()[None].to(device)
        generator = torch.Generator(device).manual_seed(seed_of(self.seed, "sample"))
        with evaluating(model):
            written = generate(model, tokens, self.count, generator=generator)
        text = self.vocabulary.decode(written[0, 1:].tolist())
        self.path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        log_text(trainer.loggers, "sample", text, trainer.global_step)
        if self.console is not None:
            self.console.print(Panel(Text(text), title="a sample", title_align="left"))
