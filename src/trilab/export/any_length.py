"""A model whose operations depend on how long the text is → one program for every length and number of texts."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trilab.errors import BadInput
from trilab.model import LanguageModel
from trilab.report.runs import one_line

MOST_TEXTS = 2**31 - 1
SAID = 300  # characters of the exporter's own words in a message


class AnyLength(nn.Module):
    """Fills every text to block_size, runs the model, and gives the logits of what was there.

    Chunks, scans and loops over positions are other operations for another length, and a program has only one list of
    them. That what comes later changes nothing that came before is what a causal model promises, so the filling does
    not show. It costs the operations of block_size characters, however short the text is.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) int64 ids, 1 ≤ T ≤ block_size → (B, T, V) logits."""
        batch, time = tokens.shape
        size = self.model.block_size
        filled = torch.cat([tokens, tokens.new_zeros(batch, size)], 1)[:, :size]
        logits: Tensor = self.model(filled)
        # by index: a slice would be another operation at full length, where it is the whole
        return logits.index_select(1, torch.arange(time, device=tokens.device))


def program(model: LanguageModel) -> ExportedProgram:
    """All operations from ids to logits, with the weights.

    Raises:
        BadInput: an operation that torch.export cannot follow, such as a decision that depends on values.
    """
    size = model.block_size
    example = torch.zeros(2, min(size, 2), dtype=torch.int64)
    time = {1: Dim("time", min=1, max=size)} if size > 1 else {}
    try:
        with torch.no_grad(), quiet():
            found = torch.export.export(
                AnyLength(model).eval(), (example,), dynamic_shapes=({0: Dim("batch", min=1, max=MOST_TEXTS), **time},)
            )
    except Exception as error:  # what a user's class makes the exporter raise can be anything
        raise BadInput(
            f"This model cannot be exported as a program: torch.export does not take it ({type(error).__name__}: "
            f"{one_line(str(error))[:SAID]}). --format safetensors takes every model."
        ) from error
    for node in found.graph.nodes:  # where on this machine the code lies is nobody's business
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"):
            node.meta.pop(key, None)
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what torch's exporters say of their own working."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
