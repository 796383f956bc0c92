"""Text, vocabulary and windows for Lightning. Only window starts travel; the tokens live where the model lives."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from trilab.corpus import Corpus
from trilab.windows import (
    Dealt,
    TrainWindows,
    ValidationBatches,
    WindowBatch,
    Windows,
    gather,
    gather_targets,
    shard,
    split,
)

ON_DEVICE = 4 << 30  # bytes of token ids that are taken to an accelerator; a longer text stays where it is


class CharData(LightningDataModule):
    """Training and validation windows of one text.

    Batch k of training is a function of (seed, step), sliced by micro-step and rank, so a resumed run reads on where
    it stopped and N processes read the same windows as one. Validation covers every target character of its split
    exactly once, in order.

    Args:
        corpus: the text.
        seed: of the order of the training windows.
        block_size: characters a window gives.
        batch_size: windows of one optimizer step, over all processes and accumulated micro-steps.
        val_share, test_share: shares of the text at its end; the test share is last.
        val_chars: about how many characters one validation batch holds.
        max_steps: optimizer steps of the whole training.
        accumulate: micro-steps per optimizer step.
        world_size: processes, to refuse at once what cannot be dealt to them.
    Raises:
        BadInput: a split too short for a window, windows that do not hold whole episodes, a batch larger than there are
            windows or not divisible, one distinct character only.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        seed: int,
        block_size: int,
        batch_size: int,
        val_share: float,
        test_share: float,
        val_chars: int,
        max_steps: int,
        accumulate: int,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        self.corpus = corpus
        self.block_size = block_size
        self.max_steps = max_steps
        self.accumulate = accumulate
        self.tokens = torch.from_numpy(corpus.tokens)
        self.splits = split(
            self.tokens,
            val_share=val_share,
            test_share=test_share,
            block_size=block_size,
            episode=corpus.episode,
            origin=corpus.origin,
        )
        self.windows = TrainWindows(self.splits.train, block_size, batch_size, seed, episode=corpus.episode)
        shard(self.windows.starts(0), 0, accumulate, 0, world_size)  # refuses what cannot be divided
        self.val_begins = len(self.splits.train)
        self.test_begins = self.val_begins + len(self.splits.val)
        self.validation, self.test = (
            ValidationBatches(len(part), block_size, max(1, val_chars // block_size), begins=begins)
            for part, begins in ((self.splits.val, self.val_begins), (self.splits.test, self.test_begins))
        )
        self.answers = None if corpus.answers is None else torch.from_numpy(corpus.answers)

    @property
    def batch_chars(self) -> int:
        """Characters learned from in one optimizer step, over all processes."""
        return self.windows.batch_size * self.block_size

    def train_dataloader(self) -> Iterable[WindowBatch]:
        """Micro-steps from the trainer's present step to the last."""
        return _MicroSteps(self)  # a DataLoader around it would only take time

    def val_dataloader(self) -> DataLoader[WindowBatch]:
        """Every validation window counted once, dealt over the processes."""
        return self._dealt(self.validation)

    def test_dataloader(self) -> DataLoader[WindowBatch]:
        """As val_dataloader, over the test split."""
        return self._dealt(self.test)

    def _dealt(self, batches: ValidationBatches) -> DataLoader[WindowBatch]:
        trainer = self.trainer
        assert trainer is not None
        return DataLoader(Dealt(batches, trainer.global_rank, trainer.world_size), batch_size=None)

    def transfer_batch_to_device(self, batch: WindowBatch, device: Any, dataloader_idx: int) -> Windows:
        """Window starts → windows, on the device."""
        if self.tokens.device != device and self.tokens.nbytes <= ON_DEVICE:
            self.tokens = self.tokens.to(device)
        starts = batch.starts.to(device)
        inputs, targets = (cut.to(device) for cut in gather(self.tokens, batch.starts, batch.length))
        n_counted = len(starts) if batch.counted else 0
        answers = None
        if self.answers is not None:
            self.answers = self.answers.to(device)
            answers = gather_targets(self.answers, starts, batch.length)[:n_counted]
        return Windows(inputs, targets[:n_counted], starts[:n_counted], answers)


class _MicroSteps(Iterable[WindowBatch]):
    def __init__(self, data: CharData) -> None:
        self.data = data

    def __iter__(self) -> Iterator[WindowBatch]:
        data, trainer = self.data, self.data.trainer
        assert trainer is not None
        for step in range(trainer.global_step, data.max_steps):
            starts = data.windows.starts(step)
            for micro_step in range(data.accumulate):
                mine = shard(starts, micro_step, data.accumulate, trainer.global_rank, trainer.world_size)
                yield WindowBatch(mine, data.block_size)
