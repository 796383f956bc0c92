"""Pictures of weight tables: which pixel is which weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from PIL import Image

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.agg.softmax import SoftmaxMean
from trilab.callbacks import weight_tables
from trilab.callbacks.weight_tables import WeightTables, draw, strip, tables
from trilab.colours import COLD, WARM
from trilab.model import LanguageModel

from ..test_learner import QUIET, fit, learner

pytestmark = QUIET


def pixel(picture: Image.Image, row: int, column: int, size: int) -> tuple[int, ...]:
    """The middle of one weight's square."""
    side = picture.height // size
    return tuple(int(v) for v in np.asarray(picture)[row * side + side // 2, column * side + side // 2])


def test_row_t_of_the_picture_is_position_t_and_larger_weights_are_brighter() -> None:
    table = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    picture = draw(table)
    dark, middle, bright = (tuple(WARM[i].astype(int)) for i in (0, 2, 4))
    assert pixel(picture, 0, 0, 3) == bright
    assert pixel(picture, 0, 2, 3) == pixel(picture, 1, 2, 3) == dark
    assert sum(middle) < sum(pixel(picture, 1, 0, 3)) < sum(bright)
    assert pixel(picture, 1, 0, 3) == pixel(picture, 2, 2, 3)
    assert pixel(picture, 2, 0, 3) == middle  # a quarter of the largest: half of the scale


def test_the_colours_get_brighter_all_the_way() -> None:
    row = np.linspace(0, 1, 64)
    grey = np.asarray(draw(np.tile(row, (64, 1))).convert("L"))[2].astype(int)
    assert (np.diff(grey) >= 0).all()


@pytest.mark.parametrize(("size", "side"), [(1, 256), (3, 258), (8, 256), (256, 256), (300, 300)])
def test_a_picture_is_square_and_at_least_256_pixels_wide(size: int, side: int) -> None:
    assert draw(np.tril(np.ones((size, size)))).size == (side, side)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_a_table_of_one_value_is_drawn_without_a_warning(value: float) -> None:
    assert len(draw(np.full((2, 2), value)).getcolors()) == 1


def test_negative_weights_are_cold_and_zero_is_dark() -> None:
    picture = draw(np.array([[0.0, 0.0], [-1.0, 1.0]]))
    assert pixel(picture, 1, 0, 2) == tuple(COLD[4].astype(int))
    assert pixel(picture, 1, 1, 2) == tuple(WARM[4].astype(int))
    assert pixel(picture, 0, 0, 2) == tuple(WARM[0].astype(int))


def test_each_layer_has_a_table_whose_heads_are_drawn_side_by_side() -> None:
    model = LanguageModel(11, 8, lambda n, b: SelfAttention(n, b, n_head=4), n_embd=8, n_layer=2)
    found = tables(model, torch.zeros(1, 8, dtype=torch.int64))
    assert list(found) == ["layer_0", "layer_1"]
    picture = strip(found["layer_0"])
    assert picture.size == (4 * 256 + 3 * 4, 256)
    (table, _) = model.weights(torch.zeros(1, 8, dtype=torch.int64))
    assert table is not None
    third = picture.crop((2 * 260, 0, 2 * 260 + 256, 256))
    assert third.tobytes() == draw(table[0, 2].detach().double().numpy()).tobytes()


def test_more_than_eight_heads_are_cut_to_eight() -> None:
    model = LanguageModel(11, 8, lambda n, b: SelfAttention(n, b, n_head=16), n_embd=16)
    assert tables(model, torch.zeros(1, 8, dtype=torch.int64))["layer_0"].shape == (8, 8, 8)


class Last(Aggregation):
    """Has no table."""

    def mix(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v


def test_a_strategy_without_a_table_has_none_here_and_leaves_no_file(tmp_path: Path) -> None:
    model = LanguageModel(11, 8, Last)
    assert tables(model, torch.zeros(1, 8, dtype=torch.int64)) == {}
    fit(learner(model), [WeightTables(torch.zeros(1, 8, dtype=torch.int64), fresh=lambda: model, path=tmp_path / "t")])
    assert not list(tmp_path.iterdir())


def test_at_the_end_of_training_each_picture_goes_to_the_loggers_at_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, tuple[int, int], int]] = []

    def noted(loggers: Any, name: str, picture: Image.Image, step: int) -> None:
        logged.append((name, picture.size, step))

    monkeypatch.setattr(weight_tables, "log_picture", noted)
    model = LanguageModel(11, 8, SoftmaxMean, n_layer=2)
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    fit(learner(model), [WeightTables(tokens, fresh=lambda: model, path=tmp_path / "tables.npz")])
    assert logged == [("weights/layer_0", (256, 256), 5), ("weights/layer_1", (256, 256), 5)]


def test_the_file_has_each_layer_before_and_after_the_training(tmp_path: Path) -> None:
    def fresh() -> LanguageModel:
        return LanguageModel(11, 8, lambda n, b: SelfAttention(n, b, n_head=2), n_embd=8, n_layer=2)

    module, tokens, path = learner(fresh(), lr=0.1), torch.arange(8)[None], tmp_path / "tables.npz"
    before = tables(module.model, tokens)
    fit(module, [WeightTables(tokens, fresh=fresh, path=path)])
    after = tables(module.model, tokens)
    with np.load(path, allow_pickle=False) as found:
        assert sorted(found) == [f"{when}/layer_{layer}" for when in ("after", "before") for layer in (0, 1)]
        for layer in ("layer_0", "layer_1"):
            assert found[f"before/{layer}"].dtype == np.float32
            assert found[f"before/{layer}"].shape == (2, 8, 8)
            assert np.array_equal(found[f"before/{layer}"], before[layer])
            assert np.array_equal(found[f"after/{layer}"], after[layer])
            assert not np.array_equal(before[layer], after[layer])


def test_the_file_has_the_first_positions_of_a_long_window(tmp_path: Path) -> None:
    model = LanguageModel(11, 100, SoftmaxMean)
    table = WeightTables(torch.zeros(1, 100, dtype=torch.int64), fresh=lambda: model, path=tmp_path / "tables.npz")
    table.show(model, Trainer(max_steps=0, logger=False, enable_checkpointing=False, enable_model_summary=False))
    with np.load(tmp_path / "tables.npz") as found:
        assert found["after/layer_0"].shape == (1, 64, 64)
        assert np.array_equal(found["after/layer_0"], tables(model, table.tokens)["layer_0"][:, :64, :64])
