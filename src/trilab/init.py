"""Initial values that are a function of (seed, parameter name), so that variants differ only where they must."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# In-place draws whose whole result is the draw: running one again under another seed redraws the tensor.
DRAWS = {
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    *("kaiming_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "trunc_normal_"),
    *("xavier_normal_", "xavier_uniform_"),
}


def seed_of(seed: int, name: str) -> int:
    """A 63-bit seed for the thing called name; stable over processes, machines and Python versions."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class RecordedDraws(TorchFunctionMode):
    """Remembers, for every tensor filled by a random in-place call, the call and what it left.

    A tensor that was changed since (zeroed, scaled, a row set) is not drawn again: what a constructor sets on purpose
    stays. Constructors stay ordinary PyTorch: nothing has to be written a certain way for its draws to be found.
    """

    def __init__(self) -> None:
        super().__init__()
        # address → tensor, its draw, its values after it; the tensor is held so that no other gets its address
        self._draws: dict[int, tuple[Tensor, Callable[[Tensor], Any], Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        if getattr(func, "__name__", "") in DRAWS and kwargs.get("generator") is None:
            # some functions of nn.init come here whole, with the tensor as a keyword, and their inner calls do not
            tensor, rest = (args[0], args[1:]) if args else (kwargs.pop("tensor"), ())
            self._draws[tensor.data_ptr()] = (
                tensor,
                lambda other: func(other, *rest, **kwargs),
                tensor.detach().clone(),
            )
        return result

    def redraw(self, module: nn.Module, seed: int) -> None:
        """Draw every recorded parameter and buffer again, each under the seed of its own name."""
        with torch.no_grad():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if tensor.is_meta:  # no values, so none to repeat
                    continue
                _, draw, left = self._draws.get(tensor.data_ptr(), (None, None, None))
                if draw is not None and left is not None and torch.equal(tensor, left):
                    torch.default_generator.manual_seed(seed_of(seed, name))
                    draw(tensor)


@contextmanager
def named_draws(module: nn.Module, seed: int) -> Iterator[None]:
    """Construct a module's parts inside: afterwards each initial value depends on (seed, name, shape) only.

    The global random state is left as it was. What is drawn in another way than in place (torch.randn(…) * 0.02) is
    kept as drawn: seed the generator before constructing such a part, and its values are its own too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(seed, ""))
        draws = RecordedDraws()
        with draws:
            yield
        draws.redraw(module, seed)
