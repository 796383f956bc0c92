"""How a character is chosen among those that a model thinks likely."""

import math
from dataclasses import dataclass

from trilab.errors import BadInput


@dataclass(frozen=True)
class Sampling:
    """p_i ∝ exp(logit_i / temperature), of the top_k likeliest, and of these the fewest that together have top_p.

    Args:
        temperature: 0 takes the likeliest each time, 1 draws as the model says, above it more evenly.
        top_k: characters to choose among; more than the vocabulary has, or None, are all.
        top_p: share of the probability that the chosen ones must have together; 1 are all. The likeliest always stays.
    Raises:
        BadInput: a number out of range; the message calls it by its option of `trilab generate`.
    Source:
        top_k: Fan, Lewis and Dauphin 2018; top_p: Holtzman et al. 2019, after top_k and on what it leaves.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if math.isnan(self.temperature) or self.temperature < 0:
            raise BadInput(
                f"--temperature {self.temperature:g} must be 0 (the likeliest each time) or more (1: plain draws)."
            )
        if self.top_k is not None and self.top_k < 1:
            raise BadInput(f"--top-k {self.top_k} must be 1 or more; leave it out to choose among all characters.")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"--top-p {self.top_p:g} must be above 0 and at most 1, which is all characters.")

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0
