import re

import pytest
import torch

from trilab.errors import BadInput
from trilab.windows import Dealt, TrainWindows, ValidationBatches, blocks, gather, gather_targets, shard, split

INTEGERS = [torch.uint8, torch.uint16, torch.int32, torch.int64]


def lengths(n: int, **shares: float) -> list[int]:
    return [len(part) for part in split(torch.arange(n), block_size=1, origin="notes.txt", **shares)]


def windows(n: int = 1_000, block_size: int = 8, batch_size: int = 12, seed: int = 0) -> TrainWindows:
    return TrainWindows(torch.arange(n), block_size, batch_size, seed)


# Splits


@pytest.mark.parametrize(
    ("n", "shares", "expected"),
    [
        (1_115_394, {}, [1_003_854, 111_540, 0]),
        (2_000, {}, [1_800, 200, 0]),
        (1_000, {"val_share": 0.1, "test_share": 0.1}, [800, 100, 100]),
        (100, {"val_share": 0.9}, [10, 90, 0]),
        (1_000, {"val_share": 0.3, "test_share": 0.3}, [400, 300, 300]),
        (101, {"val_share": 0.25, "test_share": 0.25}, [50, 25, 26]),
    ],
)
def test_the_parts_have_the_shares_that_were_asked_for(n, shares, expected):
    assert lengths(n, **shares) == expected


@pytest.mark.parametrize("n", [20, 21, 99, 12_345, 1_115_394])
def test_the_default_cut_is_that_of_nanogpt(n):
    assert lengths(n)[0] == int(0.9 * n)


def test_the_parts_are_the_text_in_its_own_order():
    tokens = torch.arange(1_000)
    assert torch.equal(torch.cat(split(tokens, block_size=8, origin="notes.txt", test_share=0.2)), tokens)


def test_a_part_too_short_for_a_window_is_named_with_its_length_and_what_is_needed():
    with pytest.raises(BadInput) as caught:
        split(torch.arange(2_000), block_size=256, origin="notes.txt")
    assert str(caught.value) == (
        "data.block_size=256 needs at least 257 characters in each split; the validation split of notes.txt has 200 "
        "(of 2,000). Lower data.block_size or use a longer text."
    )


@pytest.mark.parametrize(
    ("n", "shares", "short"),
    [
        (100, {}, "training split of notes.txt has 90 (of 100)"),
        (0, {}, "training split of notes.txt has 0 (of 0)"),
        (1_000, {"val_share": 0.3, "test_share": 0.01}, "test split of notes.txt has 10 (of 1,000)"),
        (1_000, {"val_share": 0.95}, "training split of notes.txt has 50 (of 1,000)"),
        (2_560, {}, "validation split of notes.txt has 256 (of 2,560)"),
    ],
)
def test_any_part_may_be_the_one_that_is_too_short(n, shares, short):
    with pytest.raises(BadInput, match=re.escape(short)):
        split(torch.arange(n), block_size=256, origin="notes.txt", **shares)


def test_one_token_more_than_block_size_is_enough():
    assert len(split(torch.arange(2_570), block_size=256, origin="notes.txt").val) == 257


@pytest.mark.parametrize(
    ("val_share", "test_share"), [(0, 0), (-0.1, 0), (1, 0), (0.5, 0.5), (0.1, -0.1), (0.1, 1), (float("nan"), 0)]
)
def test_shares_that_cannot_be_are_refused(val_share, test_share):
    with pytest.raises(BadInput, match=f"val_share={val_share} and data.test_share={test_share}"):
        lengths(1_000, val_share=val_share, test_share=test_share)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_text_of_one_character_is_refused(dtype):
    with pytest.raises(BadInput, match=r"notes\.txt is one character over and over \(100 times\)"):
        split(torch.zeros(100, dtype=dtype), block_size=8, origin="notes.txt")


def test_a_text_of_one_character_that_is_also_too_short_is_called_too_short():
    with pytest.raises(BadInput, match="needs at least 257 characters"):
        split(torch.zeros(100), block_size=256, origin="notes.txt")


@pytest.mark.parametrize(("n", "shares"), [(1_000, {}), (1_003, {"test_share": 0.15}), (997, {"val_share": 0.333})])
def test_parts_of_a_text_of_episodes_begin_where_an_episode_begins(n, shares):
    train, val, test = split(torch.arange(n), block_size=8, origin="recall", episode=4, **shares)
    assert len(train) % 4 == 0
    assert not len(test) or (len(train) + len(val)) % 4 == 0
    assert torch.equal(torch.cat([train, val, test]), torch.arange(n))


def test_windows_that_cut_an_episode_are_refused():
    with pytest.raises(BadInput, match=r"data\.block_size=10 does not hold whole episodes of recall, which are 4 char"):
        split(torch.arange(1_000), block_size=10, origin="recall", episode=4)


# Training


@pytest.mark.parametrize(("n", "n_windows"), [(8, 0), (9, 1), (12, 1), (13, 2), (16, 2), (17, 3)])
def test_windows_of_a_text_of_episodes_begin_where_an_episode_begins(n, n_windows):
    assert TrainWindows(torch.arange(10_000), 8, 5, 0, episode=4).starts(3).remainder(4).eq(0).all()
    if not n_windows:
        with pytest.raises(BadInput, match="more than the 0 windows"):
            TrainWindows(torch.arange(n), 8, 1, 0, episode=4)
        return
    few = TrainWindows(torch.arange(n), 8, 1, 0, episode=4)
    seen = torch.cat([few.starts(step) for step in range(100)]).unique()
    assert seen.tolist() == [4 * place for place in range(n_windows)]


def test_the_windows_of_a_step_depend_on_seed_and_step_alone():
    forwards = [windows().starts(step) for step in range(5)]
    backwards = [windows().starts(step) for step in reversed(range(5))]
    assert all(map(torch.equal, forwards, reversed(backwards)))


def test_the_windows_of_a_step_are_the_same_for_all_time():
    # Another generator, key or counter would make earlier results incomparable.
    assert windows(1_000, 8, 6, 1337).starts(0).tolist() == [39, 494, 400, 558, 570, 472]
    assert windows(1_000, 8, 6, 1337).starts(2**40).tolist() == [908, 767, 347, 485, 268, 358]


def test_neighbouring_steps_and_seeds_share_no_draws():
    runs = [windows(n=10**6, batch_size=8, seed=seed) for seed in (-1, 0, 1, 2**70)]
    draws = torch.cat([run.starts(step) for run in runs for step in range(20)])
    assert draws.unique().numel() > 630  # of 640


def test_a_batch_contains_the_smaller_batch_of_the_same_step():
    assert torch.equal(windows(batch_size=12).starts(3)[:5], windows(batch_size=5).starts(3))


def test_every_window_is_drawn_and_about_as_often_as_any_other():
    drawn = windows(n=18, block_size=8, batch_size=10)  # ten windows
    counts = torch.stack([drawn.starts(step) for step in range(2_000)]).flatten().bincount()
    assert len(counts) == 10
    assert (counts - 2_000).abs().max() < 5 * (20_000 * 0.1 * 0.9) ** 0.5


@pytest.mark.parametrize(("n", "batch_size"), [(22_000, 100_000), (1_000, 993), (8, 1), (0, 1)])
def test_a_batch_larger_than_there_are_windows_is_refused(n, batch_size):
    with pytest.raises(BadInput, match=rf"data\.batch_size={batch_size} is more than the {max(n - 8, 0):,} windows"):
        windows(n=n, batch_size=batch_size)


def test_a_batch_as_large_as_there_are_windows_is_fine():
    assert windows(n=1_000, batch_size=992).starts(0).max() <= 991


@pytest.mark.parametrize("size", ["block_size", "batch_size"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one_are_refused(size, value):
    with pytest.raises(BadInput, match=rf"data\.{size}={value} must be at least 1"):
        windows(**{size: value})
    if size == "block_size":
        with pytest.raises(BadInput, match=rf"data\.{size}={value} must be at least 1"):
            split(torch.arange(1_000), block_size=value, origin="notes.txt")


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_processes_and_micro_steps_read_the_whole_batch_between_them(world_size, accumulate):
    starts = torch.arange(24)
    parts = [
        shard(starts, micro_step, accumulate, rank, world_size)
        for micro_step in range(accumulate)
        for rank in range(world_size)
    ]
    assert len({len(part) for part in parts}) == 1
    assert torch.equal(torch.cat(parts), starts)


def test_a_batch_that_cannot_be_dealt_evenly_is_refused_with_the_three_numbers():
    with pytest.raises(BadInput, match=r"data\.batch_size=32 .* 3 processes times 2 accumulated .* multiple of 6"):
        shard(torch.arange(32), 0, 2, 0, 3)


# Gathering


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("block_size", [1, 8, 99])
def test_targets_are_the_characters_after_the_inputs(dtype, block_size):
    tokens = (torch.arange(100) * 7 % 64).to(torch.int32).to(dtype)
    starts = torch.arange(100 - block_size)
    inputs, targets = gather(tokens, starts, block_size)
    row = tokens.tolist()
    assert inputs.tolist() == [row[start : start + block_size] for start in starts]
    assert targets.tolist() == [row[start + 1 : start + block_size + 1] for start in starts]
    for part in (inputs, targets):
        assert part.dtype == torch.int64
        assert part.is_contiguous()


@pytest.mark.parametrize("block_size", [1, 8, 99])
def test_what_is_known_of_a_target_is_cut_out_with_it(block_size):
    tokens, starts = torch.arange(100), torch.arange(100 - block_size)
    odd = tokens % 2 == 1
    marks = gather_targets(odd, starts, block_size)
    assert marks.dtype == torch.bool
    assert torch.equal(marks, gather(tokens, starts, block_size)[1] % 2 == 1)


def test_windows_are_copies_that_leave_the_text_alone():
    tokens = torch.arange(20)
    for part in gather(tokens, torch.tensor([3]), 4):
        part.zero_()
    assert torch.equal(tokens, torch.arange(20))


# Validation


@pytest.mark.parametrize("n_tokens", [2, 3, 8, 9, 10, 17, 100, 101])
@pytest.mark.parametrize("block_size", [1, 3, 8])
@pytest.mark.parametrize("windows_per_batch", [1, 4, 1_000])
def test_validation_has_every_character_but_the_first_as_a_target_once_in_order(
    n_tokens, block_size, windows_per_batch
):
    tokens = torch.arange(n_tokens)
    batches = ValidationBatches(n_tokens, block_size, windows_per_batch)
    read = [gather(tokens, batch.starts, batch.length) for batch in batches]
    assert torch.cat([targets.flatten() for _, targets in read]).tolist() == list(range(1, n_tokens))
    assert torch.cat([inputs.flatten() for inputs, _ in read]).tolist() == list(range(n_tokens - 1))
    assert all(len(batch.starts) <= windows_per_batch for batch in batches)
    assert all(batch.length == block_size for batch in batches[:-1])


def test_the_short_last_window_is_a_batch_of_its_own():
    batches = ValidationBatches(21, 8, 5)
    assert [(batch.starts.tolist(), batch.length) for batch in batches] == [([0, 8], 8), ([16], 4)]


@pytest.mark.parametrize("n_tokens", [0, 1])
def test_where_nothing_can_be_predicted_there_is_no_batch(n_tokens):
    assert len(ValidationBatches(n_tokens, 8, 5)) == 0


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 8, 20])
def test_each_validation_batch_counts_on_exactly_one_process_and_all_read_as_many(world_size):
    batches = ValidationBatches(100, 8, 2)
    hands = [Dealt(batches, rank, world_size) for rank in range(world_size)]
    dealt = sorted(int(start) for hand in hands for batch in hand if batch.counted for start in batch.starts)
    assert dealt == list(range(0, 99, 8))
    assert {len(hand) for hand in hands} == {-(-len(batches) // world_size)}


@pytest.mark.parametrize(("n_tokens", "block_size"), [(2, 8), (9, 8), (100, 8), (801, 8), (802, 8), (5000, 7)])
def test_stretches_of_whole_windows_cover_a_split_and_are_a_hundred_at_most(n_tokens, block_size):
    length, n_blocks = blocks(n_tokens, block_size)
    starts = [int(start) for batch in ValidationBatches(n_tokens, block_size, 4) for start in batch.starts]
    assert length % block_size == 0
    assert n_blocks <= 100
    assert sorted({start // length for start in starts}) == list(range(n_blocks))


@pytest.mark.parametrize(("block_size", "windows_per_batch", "named"), [(0, 1, "block_size"), (8, 0, "per_batch")])
def test_validation_sizes_below_one_are_refused(block_size, windows_per_batch, named):
    with pytest.raises(BadInput, match=f"{named}=0 must be at least 1"):
        ValidationBatches(100, block_size, windows_per_batch)
