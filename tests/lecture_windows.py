"""The lecture's ladder as it was shown, against trilab's, and how far the lecture's way of measuring carries.

    python -m tests.lecture_windows outputs/lecture --page docs/results.md

The lecture estimates a loss from 200 batches of 32 windows, drawn at random from the validation text; trilab reads
each of its characters once. How far such an estimate strays is not simulated: the loss of every window there is, is
computed, and a mean of 6,400 independent draws has their standard deviation / √6,400. How far another seed ends up, the
runs show.
"""

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from trilab import checkpoint
from trilab.build import build_model
from trilab.config import read
from trilab.corpus import read_corpus
from trilab.errors import BadInput
from trilab.loss import char_nats
from trilab.report.runs import Run, read_runs
from trilab.vocabulary import Vocabulary
from trilab.windows import split

# What the lecture and its notes show, one run of seed 1337 each; nats per character.
SHOWN = {
    "1_bigram": 2.491,
    "2_one_head": 2.408,
    "3_four_heads": 2.286,
    "4_feed_forward": 2.241,
    "5_residual": 2.081,
    "6_layer_norm": 2.057,
}
DRAWN = 200 * 32  # windows of one estimate
BEGIN, END = "<!-- begin lecture's windows -->\n", "<!-- end lecture's windows -->"
_AT_ONCE = 4096  # windows


@dataclass(frozen=True)
class Windows:
    """The losses of every window of the validation text under one model, nats per character."""

    mean: float
    """What estimates from random windows come to in the long run."""
    std: float
    """Of one window's loss."""

    @property
    def of_an_estimate(self) -> float:
        """Standard deviation of the mean of 6,400 windows drawn at random."""
        return self.std / math.sqrt(DRAWN)


def windows(run: Run) -> Windows:
    """Put every window of the validation text to a run's final model."""
    content = checkpoint.load(run.folder / "checkpoints" / "last.ckpt")
    config, vocabulary = read(content["trilab"]["config"]), Vocabulary(content["trilab"]["vocabulary"])
    model = build_model(config, len(vocabulary))
    model.load_state_dict(checkpoint.model_weights(content))
    model.eval()
    corpus = read_corpus(config.data.source)
    block_size = config.data.block_size
    val = split(
        torch.from_numpy(corpus.tokens),
        block_size=block_size,
        origin=corpus.origin,
        val_share=config.data.val_share,
        test_share=config.data.test_share,
    ).val
    every = val.unfold(0, block_size + 1, 1)  # (windows, T + 1)
    losses = []
    with torch.no_grad():
        for some in torch.split(every, _AT_ONCE):
            tokens = some.long()
            losses.append(char_nats(model(tokens[:, :-1]), tokens[:, 1:]).double().mean(1))
    of_window = torch.cat(losses)
    return Windows(of_window.mean().item(), of_window.std().item())


def table(runs: Iterable[Run]) -> str:
    """A line a rung, in Markdown.

    Here: mean over the seeds, each character read once; spread: their standard deviation. Random windows: what
    estimates of the same models come to in the long run; strays by: one estimate's standard deviation. Off by: the
    lecture's number minus the one here; expected: the standard deviation of such a difference,
    √(e² + s² · (1 + 1/n)), where an estimate strays by e and n seeds spread by s.
    """
    rungs: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.status == "finished" and run.label in SHOWN:
            rungs[run.label].append(run)
    headers = ("rung", "lecture", "here", "seeds", "spread", "random windows", "strays by", "off by", "expected")
    lines = [f"| {' | '.join(headers)} |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for label, shown in SHOWN.items():
        if len(rungs[label]) < 2:
            raise BadInput(
                f"{label} has {len(rungs[label])} finished runs: two seeds at least tell how far seeds differ."
            )
        losses = [run.val_loss for run in rungs[label]]
        here, spread, n = statistics.mean(losses), statistics.stdev(losses), len(losses)
        found = [windows(run) for run in rungs[label]]
        in_the_long_run = statistics.mean(each.mean for each in found)
        strays = statistics.mean(each.of_an_estimate for each in found)
        expected = math.sqrt(strays**2 + spread**2 * (1 + 1 / n))
        lines.append(
            f"| {label} | {shown:.3f} | {here:.4f} | {n} | {spread:.4f} | {in_the_long_run:.4f} | {strays:.4f} | "
            f"{shown - here:+.4f} | ± {expected:.4f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it into a page. Exit code 0 or 2 (bad input)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="outputs/lecture")
    parser.add_argument("--page", type=Path, help="a page with the two marks between which the table stands")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        made = table(read_runs(given.experiment))
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(made)
    if given.page:
        before, begin, rest = given.page.read_text(encoding="utf-8").partition(BEGIN)
        if not begin or END not in rest:
            sys.exit(f"{given.page} has no place for it: {BEGIN.strip()} and, below it, {END}.")
        given.page.write_text(f"{before}{begin}\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
