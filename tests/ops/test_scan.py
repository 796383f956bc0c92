"""The scan is its loop: values and gradients, every length, factors that broadcast; by kernels and by torch's own."""

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from trilab.ops import cpu, paths, scan
from trilab.ops.recurrence import library
from trilab.ops.scan import registered_scan, registered_scan_backward, scan_loop

needs_kernels = pytest.mark.skipif(library() is None, reason="there is no C compiler here")

# lengths around whole numbers of chunks: ⌈√T⌉ chunks of ⌈√T⌉ tokens
LENGTHS = [*range(1, 12), 15, 16, 17, 63, 64, 65]

# shapes of a, b and x, T being 7: whose factors are whose
FACTORS = {
    "each its own": ((2, 7, 3, 4), (2, 7, 3, 4), (2, 7, 3, 4)),
    "rows share": ((1, 7, 3, 4), (1, 7, 3, 4), (2, 7, 3, 4)),
    "rows and channels of a head share": ((1, 7, 3, 1), (1, 7, 3, 1), (2, 7, 3, 4)),
    "channels of a head share, each row its own": ((2, 7, 3, 1), (2, 7, 3, 1), (2, 7, 3, 4)),
    "all channels share": ((2, 7, 1, 1), (2, 7, 1, 1), (2, 7, 3, 4)),
    "constant for each channel": ((1, 1, 6), (1, 1, 6), (2, 7, 6)),
    "heads share": ((1, 7, 1, 4), (1, 7, 1, 4), (2, 7, 3, 4)),
    "a and b unlike": ((1, 7, 3, 1), (2, 7, 1, 4), (2, 7, 3, 4)),
    "without b": ((2, 7, 3, 4), None, (2, 7, 3, 4)),
    "one number": ((1, 1, 1), None, (2, 7, 5)),
    "a head over two blocks": ((1, 3, 2, 1), (1, 3, 2, 1), (1, 3, 2, 700)),
    "no channels": ((2, 7), (1, 7), (2, 7)),
}
EVERY_FACTOR = pytest.mark.parametrize("shapes", FACTORS.values(), ids=FACTORS)


@pytest.fixture(params=[pytest.param("kernels", marks=needs_kernels), "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs by kernels and by torch's own operations."""
    if request.param == "torch":
        monkeypatch.setattr(scan, "has_kernels", lambda x: False)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def parts(shapes: tuple[tuple[int, ...] | None, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """a between -1 and 1, x, and b where there is one: what `scan` takes, in order."""
    a, b, x = (None if shape is None else drawn(*shape, dtype=dtype) for shape in shapes)
    assert a is not None
    assert x is not None
    return [a.detach().tanh().requires_grad_(), x] + ([] if b is None else [b])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("time", LENGTHS)
@pytest.mark.parametrize("factors", [(2, 3, 4), (1, 3, 4), (2, 1, 1), (1, 1, 4)])
def test_the_scan_is_its_loop_with_gradients(factors: tuple[int, int, int], time: int) -> None:
    torch.manual_seed(time)
    rows, *rest = factors
    same_as_the_loop(parts(((rows, time, *rest), None, (2, time, 3, 4))))


@pytest.mark.usefixtures("way")
@EVERY_FACTOR
def test_factors_are_shared_as_their_shapes_say_with_gradients(shapes: tuple[tuple[int, ...] | None, ...]) -> None:
    torch.manual_seed(0)
    given = parts(shapes)
    same_as_the_loop(given)
    for alone in given:  # the others need no gradient
        same_as_the_loop([part if part is alone else part.detach() for part in given])


def same_as_the_loop(given: list[Tensor]) -> None:
    fast, slow = scan.scan(*given), scan_loop(*given)
    torch.testing.assert_close(fast, slow)
    cotangent = torch.randn_like(slow)
    wanted = [part for part in given if part.requires_grad]
    ours, theirs = (torch.autograd.grad(y, wanted, cotangent) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("way")
@EVERY_FACTOR
def test_gradients_have_gradients(shapes: tuple[tuple[int, ...] | None, ...]) -> None:
    torch.manual_seed(0)
    given = parts(shapes)
    found = []
    for way in (scan.scan, scan_loop):
        into = torch.autograd.grad(way(*given).square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad([g.sin().sum() for g in into], given))
    torch.testing.assert_close(*found)


@needs_kernels
@pytest.mark.parametrize("b", [False, True])
def test_a_scan_in_float32_has_the_bits_of_its_loop(b: bool) -> None:
    torch.manual_seed(0)
    a, x, *rest = parts(((2, 50, 37), (2, 50, 37) if b else None, (2, 50, 37)), torch.float32)
    assert torch.equal(scan.scan(a, x, *rest), scan_loop(a, x, *rest))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    given = [part.detach() for part in parts(FACTORS["each its own"], dtype)]
    expected = scan.scan(*(part.float() for part in given)).to(dtype)
    assert torch.equal(scan.scan(*given), expected)


@pytest.mark.usefixtures("way")
def test_the_widest_dtype_is_that_of_the_states() -> None:
    a, x = torch.rand(1, 3, 2), torch.randn(1, 3, 2)
    assert scan.scan(a, x.bfloat16()).dtype == torch.float32
    assert scan.scan(a, x, a.double()).dtype == torch.float64


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shapes", [((1, 9, 2, 1), (1, 9, 2, 1), (5, 9, 2, 650)), ((3, 9, 130), None, (3, 9, 130))])
def test_threads_change_no_bit(
    shapes: tuple[tuple[int, ...] | None, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    given = parts(shapes, dtype)
    cotangent = torch.randn_like(given[1])
    found = []
    for threads in (1, 2, 3, 8, 1000):
        monkeypatch.setattr(cpu, "_threads", lambda x, threads=threads: threads)
        h = scan.scan(*given)
        found.append((h, *torch.autograd.grad(h, given, cotangent)))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@needs_kernels
@pytest.mark.parametrize(("channels", "dtype"), [(1024, torch.float32), (1023, torch.float32), (515, torch.float64)])
def test_what_is_stored_past_the_caches_has_the_same_bits(channels: int, dtype: torch.dtype) -> None:
    """More than 8 MB, in rows that begin at any place; a part of the channels is below."""
    time = 2**23 // (channels * dtype.itemsize) + 1
    a, x = parts(((1, time, channels), None, (1, time, channels)), dtype)
    into, some = torch.randn_like(x), slice(8, 24)
    whole = [scan.scan(a, x)]
    whole += torch.autograd.grad(whole[0], (a, x), into)
    few = [scan.scan(a[..., some], x[..., some])]
    few += [given[..., some] for given in torch.autograd.grad(few[0], (a, x), into[..., some])]
    assert all(torch.equal(one[..., some], other) for one, other in zip(whole, few, strict=True))


@pytest.mark.usefixtures("way")
def test_what_does_not_lie_in_order_is_taken_as_what_it_is() -> None:
    torch.manual_seed(0)
    a, x = (drawn(4, 6, 5).detach().tanh().transpose(0, 2).requires_grad_() for _ in range(2))
    same_as_the_loop([a, x])
    same_as_the_loop([a[:1, :, :1], x, a[:, :, ::2].repeat_interleave(2, 2)])


@pytest.mark.usefixtures("way")
def test_the_arguments_stay_as_they_are() -> None:
    given = [torch.rand(1, 9, 2), torch.randn(2, 9, 2), torch.rand(2, 9, 2)]
    kept = [part.clone() for part in given]
    scan.scan(*given)
    assert all(torch.equal(*pair) for pair in zip(given, kept, strict=True))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("t", range(16))
def test_what_a_later_position_holds_never_reaches_an_earlier_one(t: int) -> None:
    torch.manual_seed(0)
    a, x = torch.rand(2, 16, 3), torch.randn(2, 16, 3)
    before = scan.scan(a, x)
    a[:, t], x[:, t] = torch.inf, torch.nan
    assert torch.equal(scan.scan(a, x)[:, :t], before[:, :t])


@pytest.mark.usefixtures("way")
def test_factors_of_zero_forget_and_factors_of_one_sum() -> None:
    x = torch.randn(2, 10, 3, dtype=torch.float64)
    assert torch.equal(scan.scan(torch.zeros_like(x), x), x)
    torch.testing.assert_close(scan.scan(torch.ones_like(x), x), x.cumsum(1))


@pytest.mark.usefixtures("way")
def test_a_thousand_tiny_factors_underflow_to_zero_and_never_to_nan() -> None:
    a = torch.full((1, 1000, 1), 1e-30, requires_grad=True)
    x = torch.full((1, 1000, 1), 1e30, requires_grad=True)
    y = scan.scan(a, x)
    assert y.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(y.sum() * 1e-30, [a, x]))


def test_transforms_of_functions_go_through_it() -> None:
    torch.manual_seed(0)
    a, x = torch.rand(7, 3, dtype=torch.float64), torch.randn(5, 2, 7, 3, dtype=torch.float64)

    def loss(a: Tensor, x: Tensor) -> Tensor:
        return scan.scan(a.expand(2, 7, 3), x).square().sum()

    each = torch.stack([grad(loss)(a, batch) for batch in x])
    torch.testing.assert_close(vmap(grad(loss), (None, 0))(a, x), each)
    leaf = a.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(loss(leaf, x[0]), leaf)[0], each[0])


@needs_kernels
@pytest.mark.parametrize("name", ["each its own", "channels of a head share, each row its own", "without b"])
def test_the_operations_are_registered_as_torch_asks(name: str) -> None:
    torch.manual_seed(0)
    a, x, b = [*parts(FACTORS[name]), None][:3]
    assert a is not None
    assert x is not None
    torch.library.opcheck(registered_scan, (a, b, x))
    given = [None if part is None else part.detach() for part in (a, b, x, x, x)]
    torch.library.opcheck(registered_scan_backward, (*given, True, b is not None))


@pytest.fixture(params=[pytest.param("kernels", marks=needs_kernels), "torch"])
def registered_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile has called finds the kernels, or does without."""
    if request.param == "torch":
        monkeypatch.setattr(scan, "library", lambda: None)
        monkeypatch.setattr(paths, "library", lambda: None)


@pytest.mark.usefixtures("registered_way")
@pytest.mark.parametrize("name", ["each its own", "rows and channels of a head share", "without b"])
def test_a_compiled_function_calls_it_in_one_graph_with_the_same_numbers(name: str) -> None:
    torch.manual_seed(0)
    given = parts(FACTORS[name])
    plain = scan.scan(*given) * 2
    torch._dynamo.reset()
    quick = torch.compile(lambda *given: scan.scan(*given) * 2, backend="aot_eager", fullgraph=True)(*given)
    torch.testing.assert_close(quick, plain)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), given) for y in (quick, plain)))
