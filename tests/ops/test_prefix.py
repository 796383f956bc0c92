"""Prefix sums and means are their loops: values and gradients, by kernels and by torch's own operations."""

import os

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from trilab.ops import cpu, prefix
from trilab.ops.prefix import prefix_loop, prefix_mean, prefix_sum, registered_prefix
from trilab.ops.recurrence import library

needs_kernels = pytest.mark.skipif(library() is None, reason="there is no C compiler here")
HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(params=[pytest.param("kernels", marks=needs_kernels), "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs by kernels and by torch's own operations."""
    if request.param == "torch":
        monkeypatch.setattr(prefix, "has_kernels", lambda x: False)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def whole(x: Tensor, *, mean: bool) -> Tensor:
    return prefix_mean(x) if mean else prefix_sum(x)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 7, 3), (3, 8, 4), (2, 5, 2, 3), (2, 9), (1, 3, 1030)])
def test_sums_and_means_are_their_loop_with_gradients(shape: tuple[int, ...], mean: bool) -> None:
    x = drawn(*shape).requires_grad_()
    fast, slow = whole(x, mean=mean), prefix_loop(x, mean=mean)
    torch.testing.assert_close(fast, slow)
    cotangent = drawn(*shape)
    ours, theirs = (torch.autograd.grad(y, x, cotangent) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("mean", [False, True])
def test_gradients_have_gradients(mean: bool) -> None:
    x, cotangent = drawn(2, 5, 3).requires_grad_(), drawn(2, 5, 3).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: whole(x, mean=mean) ** 3, x, cotangent)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", [(1, 1000, 67), (40, 33, 16)])
def test_a_sum_in_float32_has_the_bits_of_cumsum(shape: tuple[int, ...]) -> None:
    x = drawn(*shape, dtype=torch.float32)
    assert torch.equal(prefix_sum(x), x.cumsum(1))


@needs_kernels
def test_a_mean_in_float32_is_the_one_of_float64_rounded_if_need_be_to_the_other_side_of_a_tie() -> None:
    x = drawn(3, 2000, 21, dtype=torch.float32)
    torch.testing.assert_close(prefix_mean(x).double(), prefix_mean(x.double()), rtol=2**-24 * 1.001, atol=0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("mean", [False, True])
def test_halves_are_summed_wide_and_rounded_once_with_gradients(mean: bool, dtype: torch.dtype) -> None:
    x, cotangent = drawn(2, 300, 7, dtype=dtype).requires_grad_(), drawn(2, 300, 7, dtype=dtype)
    exact = x.detach().float().requires_grad_()
    y, expected = whole(x, mean=mean), whole(exact, mean=mean)
    assert torch.equal(y, expected.to(dtype))
    y.backward(cotangent)
    expected.backward(cotangent.float())
    assert x.grad is not None
    assert exact.grad is not None
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad, exact.grad.to(dtype))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_infinities_and_nan_stay_what_they_are_and_where_they_are(dtype: torch.dtype) -> None:
    x = torch.ones(1, 6, 3, dtype=dtype)
    x[0, 2] = torch.tensor([torch.inf, torch.nan, 1.0])
    y = prefix_sum(x)
    assert torch.equal(y[0, :2], torch.tensor([[1.0] * 3, [2.0] * 3], dtype=dtype))
    assert y[0, 2:, 0].isinf().all()
    assert y[0, 2:, 1].isnan().all()
    assert torch.equal(y[0, :, 2], torch.arange(1, 7, dtype=dtype))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("shape", [(1, 9, 1300), (5, 9, 130), (7, 9, 3)])
def test_threads_change_no_bit(
    shape: tuple[int, ...], adjoint: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = drawn(*shape, dtype=dtype)
    alone = cpu.prefix(x, True, adjoint)
    for threads in (2, 3, 8, 1000):
        monkeypatch.setattr(cpu, "_threads", lambda x, threads=threads: threads)
        assert torch.equal(cpu.prefix(x, True, adjoint), alone)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("adjoint", [False, True])
def test_what_is_stored_past_the_caches_has_the_same_bits(adjoint: bool, dtype: torch.dtype) -> None:
    x = drawn(8, 512, 1203, dtype=dtype)  # 9 MB and more; a row of them is not, and its lines begin anywhere
    assert x.nbytes > 8 * 2**20 > x[0].nbytes
    all_of_it = cpu.prefix(x, True, adjoint)
    assert all(torch.equal(all_of_it[row], cpu.prefix(x[row : row + 1], True, adjoint)[0]) for row in range(8))


@needs_kernels
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python's, of forks where threads run
def test_a_forked_child_goes_on_with_as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_threads", lambda x: 3)
    x = drawn(5, 9, 130)
    before = cpu.prefix(x, True, False)
    child = os.fork()
    if child == 0:
        os._exit(not torch.equal(cpu.prefix(x, True, False), before))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("way")
def test_what_does_not_lie_in_order_is_taken_as_what_it_is() -> None:
    x = drawn(4, 3, 5).transpose(0, 1).requires_grad_()
    y = prefix_mean(x)
    torch.testing.assert_close(y, prefix_loop(x, mean=True))
    (gradient,) = torch.autograd.grad(y.sum(), x)  # its cotangent is one number, seen everywhere
    torch.testing.assert_close(gradient, torch.autograd.grad(prefix_loop(x, mean=True).sum(), x)[0])


@pytest.mark.usefixtures("way")
def test_of_no_rows_there_are_no_means() -> None:
    assert prefix_mean(torch.empty(0, 3, 2)).shape == (0, 3, 2)


@pytest.mark.parametrize("mean", [False, True])
def test_transforms_of_functions_go_through_it(mean: bool) -> None:
    x = drawn(3, 2, 4, 5)  # three batches
    torch.testing.assert_close(vmap(lambda x: whole(x, mean=mean))(x), torch.stack([whole(b, mean=mean) for b in x]))

    def loss(x: Tensor) -> Tensor:
        return whole(x, mean=mean).square().sum()

    each = torch.stack([torch.autograd.grad(loss(b), b)[0] for b in x.clone().requires_grad_().unbind()])
    torch.testing.assert_close(vmap(grad(loss))(x), each)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adjoint", [False, True])
def test_the_operation_is_registered_as_torch_asks(adjoint: bool, dtype: torch.dtype) -> None:
    x = drawn(2, 5, 3, dtype=dtype).requires_grad_()
    torch.library.opcheck(registered_prefix, (x, True, adjoint))


@needs_kernels
def test_a_compiled_function_calls_it_in_one_graph_with_the_same_numbers() -> None:
    x = drawn(2, 5, 3).requires_grad_()
    quick = torch.compile(lambda x: prefix_mean(x) * 2, backend="aot_eager", fullgraph=True)
    ours, plain = quick(x), prefix_mean(x) * 2
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x) for y in (ours, plain)))


@needs_kernels
def test_an_exported_program_is_made_of_torchs_own_operations() -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return prefix_mean(x)

    program = torch.export.export(Mean(), (drawn(2, 5, 3),))
    assert not any("trilab" in str(node.target) for node in program.graph.nodes)
