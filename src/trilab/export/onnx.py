"""The model as an ONNX graph, which runs without Python."""

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor

from trilab.errors import BadInput
from trilab.export.any_length import SAID, program, quiet
from trilab.report.runs import one_line
from trilab.trained import Trained

SMALL = 8  # rows that are solved at once

USAGE = """\
import numpy, onnxruntime
model = onnxruntime.InferenceSession("model.onnx")
(logits,) = model.run(["logits"], {{"tokens": numpy.array([[1, 2, 3]])}})  # (1, 3) ids -> (1, 3, V)
"""


def write(trained: Trained, folder: Path) -> None:
    """Write model.onnx; beside it model.onnx.data, where the weights are more than 2 GB.

    Raises:
        BadInput: an operation that ONNX does not have; the message names it.
    """
    found = program(trained.model)
    try:
        with quiet():
            found = found.run_decompositions({torch.ops.aten.linalg_solve_triangular.default: solved_by_halves})
            graph = torch.onnx.export(
                found, dynamo=True, verbose=False, input_names=["tokens"], output_names=["logits"]
            )
            assert graph is not None
            graph.save(folder / "model.onnx")
    except OSError:
        raise
    except Exception as error:  # the exporter has an exception for each of its steps, and raises others besides
        raise BadInput(
            f"This model cannot be exported as ONNX: {_reason(error)}. --format torch-export and safetensors take it."
        ) from error
    _tidy(folder / "model.onnx")


def solved_by_halves(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """A⁻¹ B for a lower triangle with ones on its diagonal, in products only: ONNX has no solver.

    The upper half of the rows first, then the lower one with what the upper has settled. Of n ≤ SMALL rows, with L what
    is below the diagonal: (I + L)⁻¹ = (I - L)(I + L²)(I + L⁴) …, which ends because Lⁿ is zero; for large n it would
    lose itself in large powers. Other triangles are left to fail by the operation's name.

    Args:
        A: (…, n, n).
        B: (…, n, k).
    Returns:
        (…, n, k).
    """
    if upper or not left or not unitriangular:
        return NotImplemented  # type: ignore[no-any-return]
    n = A.shape[-1]
    if n > SMALL:
        half = n // 2
        first = solved_by_halves(A[..., :half, :half], B[..., :half, :], upper=False, unitriangular=True)
        rest = B[..., half:, :] - A[..., half:, :half] @ first
        return torch.cat([first, solved_by_halves(A[..., half:, half:], rest, upper=False, unitriangular=True)], -2)
    power = A.tril(-1)
    x, exponent = B - power @ B, 2
    while exponent < n:
        power = power @ power
        x, exponent = x + power @ x, 2 * exponent
    return x


def logits(trained: Trained, folder: Path, tokens: Tensor) -> Tensor | None:
    """What onnxruntime makes of the file: (B, T) ids → (B, T, V); None where it is not installed."""
    if find_spec("onnxruntime") is None:
        return None
    (found,) = _session(folder / "model.onnx").run(["logits"], {"tokens": tokens.numpy()})
    return torch.from_numpy(found)


@lru_cache(maxsize=1)
def _session(path: Path) -> Any:
    import onnxruntime  # type: ignore[import-untyped]

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _reason(error: BaseException) -> str:
    """The operation that is not there, or else the exporter's last words."""
    at: BaseException | None = error
    while at is not None:
        if missing := re.search(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'", str(at)):
            return f"it has no operation for {missing[1]}"
        error, at = at, at.__cause__
    return f"{type(error).__name__}: {one_line(str(error))[:SAID]}"


def _tidy(path: Path) -> None:
    """Give dimensions their names, and take out where on this machine the code lies."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    dimensions = graph.input[0].type.tensor_type.shape.dim
    names = {dimensions[0].dim_param: "batch", dimensions[1].dim_param: "time"}
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = names.get(dimension.dim_param, dimension.dim_param)
    del graph.value_info[:]
    del graph.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
    onnx.save(model, path)
