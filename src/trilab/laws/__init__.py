"""What every aggregation, and a whole model, must obey: functions that look for a violation and tell the worst one.

    from trilab.laws import causality_prefix
    print(causality_prefix(MyAgg(32, 8)))

A law is tried on copies, in float64, in evaluation and training mode, with parameters as they are and redrawn at
several scales, on inputs of several scales: at initial values a zero projection can hide a full leak, and a finite mask
holds until scores are large enough to outbid it. A whole model is tried at ordinary scales, on tokens; see ORDINARY.

Each form of causality is needed. Dividing by T instead of t + 1 passes the perturbation form, since T does not change;
a finite mask passes the prefix form as long as it is large against the scores; what reaches the future through the
backward pass only is seen by the gradient form alone.

Rounding and leaks. A strategy that goes through an FFT rounds earlier outputs a little differently when later inputs
change, and that is no leak. The error is about eps · log2(n) of the largest number in the row, eps being that of the
dtype and n the points of the transform: it grows with what the row holds. So a change counts relative to the largest
output of either call, and up to `rounding(dtype, T)`, a stated multiple of eps, it is rounding: 6e-14 in float64 at
T = 8. The future is redrawn at the largest input scale, 1e4. So the leak that is not seen moves an output by less than
6e-14 of what inputs of 1e4 make of it, about 1e-9 for a mean: nothing can be learned from it in float32, whose
resolution is 1e-7. The prefix form compares calls of different lengths, whose sums run in another order: it allows
1e-6 of the largest output.

Precision. What casts to float32 inside rounds at 1e-7 in a float64 copy too; it is known by giving the same bits for
inputs that differ by one part in 1e13. Then the perturbation form allows float32's rounding, laws that compare two ways
to the same numbers allow 1e-4 at ordinary scales, and the verdict says "computed in float32".

Randomness. Dropout modules are switched off where calls of different shapes are compared. What draws random numbers in
another way (F.dropout, added noise) is left out there in the mode in which it draws: only the perturbation form, whose
calls have the same shapes and the same seed, is tried on it. In evaluation mode drawing is a fault, told by `seed`.
"""

from collections.abc import Callable

from trilab.laws.causality import causality_gradient, causality_perturbation, causality_prefix, rounding
from trilab.laws.compiling import compiled
from trilab.laws.construction import Make, seed, state_dict
from trilab.laws.forward import batch, finite_range, shape
from trilab.laws.gradients import gradient
from trilab.laws.streaming import stream
from trilab.laws.tables import loop, table, triangle
from trilab.laws.trials import ORDINARY, THOROUGH, Conditions, Subject
from trilab.laws.verdict import Setting, Verdict

Law = Callable[[Subject], Verdict]
LAWS: tuple[Law, ...] = (
    shape,
    causality_prefix,
    causality_perturbation,
    causality_gradient,
    batch,
    table,
    loop,
    triangle,
    stream,
    gradient,
    finite_range,
    compiled,
)
CONSTRUCTION_LAWS: tuple[Callable[[Make], Verdict], ...] = (seed, state_dict)

__all__ = [
    "CONSTRUCTION_LAWS",
    "LAWS",
    "ORDINARY",
    "THOROUGH",
    "Conditions",
    "Law",
    "Make",
    "Setting",
    "Subject",
    "Verdict",
    "batch",
    "causality_gradient",
    "causality_perturbation",
    "causality_prefix",
    "compiled",
    "finite_range",
    "gradient",
    "loop",
    "rounding",
    "seed",
    "shape",
    "state_dict",
    "stream",
    "table",
    "triangle",
]
