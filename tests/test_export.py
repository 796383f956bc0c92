"""Exported models: other programs get the logits that trilab gets, at every length, for every strategy."""

import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from trilab.build import build_model
from trilab.config import read
from trilab.errors import BadInput
from trilab.export import export
from trilab.export.onnx import solved_by_halves
from trilab.trained import load_trained

from .conftest import ROOT, STRATEGIES, Outcome
from .test_trained import CHARACTERS, changed, content, tree

SHALLOW = ("model.n_layer=1", "agg=cumsum")
LENGTHS = (1, 2, 5, 7, 8)


def checkpoint(folder: Path, *overrides: str) -> Path:
    """A checkpoint of a small model whose weights are all redrawn, so that none is zero."""
    saved = content(tree(*overrides))
    draws = torch.Generator().manual_seed(0)
    for weight in saved["state_dict"].values():
        if weight.is_floating_point():
            weight.copy_(torch.randn(weight.shape, generator=draws) * 0.3)
    torch.save(saved, folder / "x.ckpt")
    return folder / "x.ckpt"


def close(one: Any, other: torch.Tensor) -> bool:
    """Equal to rounding."""
    return np.abs(np.asarray(one) - other.numpy()).max() < 1e-4 * max(1.0, float(other.abs().max()))


@torch.no_grad()
def logits(path: Path, tokens: list[list[int]]) -> torch.Tensor:
    return load_trained(path).model(torch.tensor(tokens))


def texts(time: int, batch: int, vocab_size: int = len(CHARACTERS)) -> list[list[int]]:
    draws = torch.Generator().manual_seed(time)
    return torch.randint(vocab_size, (batch, time), generator=draws).tolist()


@pytest.mark.parametrize("name", STRATEGIES)
def test_safetensors_holds_the_weights_of_every_strategy_bit_for_bit(tmp_path: Path, name: str) -> None:
    path = checkpoint(tmp_path, f"agg={name}")
    folder = export(path, format="safetensors")
    weights = {
        k.removeprefix("model."): v for k, v in torch.load(path, weights_only=True)["state_dict"].items() if "." in k
    }
    found = load_file(folder / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[key], weights[key]) for key in weights)
    model = build_model(read(tree(f"agg={name}")), len(CHARACTERS)).eval()
    model.load_state_dict(found)
    for time in LENGTHS:
        assert close(model(torch.tensor(texts(time, 3))).detach(), logits(path, texts(time, 3)))


def test_the_safetensors_file_is_what_its_format_says(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "agg=attention")
    raw = (export(path, format="safetensors") / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    weights = torch.load(path, weights_only=True)["state_dict"]
    assert {f"model.{name}" for name in header} == set(weights)
    for name, told in header.items():
        first, last = (8 + length + offset for offset in told["data_offsets"])
        assert told["dtype"] == "F32"
        assert told["shape"] == list(weights[f"model.{name}"].shape)
        assert raw[first:last] == weights[f"model.{name}"].numpy().tobytes()


def in_a_process_without_trilab(folder: Path, tokens: list[list[list[int]]]) -> list[Any]:
    """What model.pt2 gives for these, loaded where no trilab can be imported."""
    code = (
        "import json, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "sys.modules['trilab'] = None\n"
        "import torch\n"
        f"model = torch.export.load({str(folder / 'model.pt2')!r}).module()\n"
        f"print(json.dumps([model(torch.tensor(t)).tolist() for t in {tokens}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def check_torch_export(path: Path) -> None:
    folder = export(path, format="torch-export")
    given = [texts(time, batch) for time in LENGTHS for batch in (1, 3)]
    for tokens, found in zip(given, in_a_process_without_trilab(folder, given), strict=True):
        assert close(found, logits(path, tokens))


def check_onnx(path: Path, lengths: tuple[int, ...] = LENGTHS) -> None:
    folder = export(path, format="onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    [tokens], [scores] = session.get_inputs(), session.get_outputs()
    assert (tokens.name, tokens.shape, tokens.type) == ("tokens", ["batch", "time"], "tensor(int64)")
    assert (scores.name, scores.shape) == ("logits", ["batch", "time", len(CHARACTERS)])
    for time in lengths:
        for batch in (1, 3):
            [found] = session.run(["logits"], {"tokens": np.array(texts(time, batch))})
            assert close(found, logits(path, texts(time, batch)))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_torch_export, check_onnx])
def test_a_small_model_gives_its_logits_as_a_program(tmp_path: Path, check: Callable[[Path], None]) -> None:
    check(checkpoint(tmp_path, *SHALLOW))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_its_logits_as_a_program_of_torch(tmp_path: Path, name: str) -> None:
    check_torch_export(checkpoint(tmp_path, f"agg={name}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_its_logits_in_onnx(tmp_path: Path, name: str) -> None:
    check_onnx(checkpoint(tmp_path, f"agg={name}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_texts_longer_than_a_chunk_give_their_logits_in_onnx(tmp_path: Path, name: str) -> None:
    check_onnx(checkpoint(tmp_path, f"agg={name}", "data.block_size=80"), (1, 63, 64, 65, 80))


def test_a_model_of_one_character_can_be_exported(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, *SHALLOW, "data.block_size=1")
    folder = export(path, format="torch-export")
    model = torch.export.load(folder / "model.pt2").module()
    assert close(model(torch.tensor(texts(1, 4))).detach(), logits(path, texts(1, 4)))


def test_config_and_vocabulary_say_what_the_model_is_and_its_characters_with_their_ids(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "agg=attention")
    folder = export(path, format="safetensors")
    told = json.loads((folder / "config.json").read_text())
    assert told["vocab_size"] == len(CHARACTERS)
    assert told["block_size"] == 8
    assert told["step"] == 2
    assert told["agg"][0]["_target_"] == "trilab.agg.attention.SelfAttention"
    listed = json.loads((folder / "vocabulary.json").read_text())
    assert [each["id"] for each in listed] == [*range(len(CHARACTERS))]
    assert "".join(each["character"] for each in listed) == CHARACTERS
    assert listed[0] == {"id": 0, "character": "\n", "code_point": "U+000A"}
    assert "(batch, time) int64" in (folder / "README.txt").read_text()
    assert "(batch, time, 12) float32" in (folder / "README.txt").read_text()


def test_half_of_a_surrogate_pair_in_the_vocabulary_is_kept(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    saved = torch.load(path, weights_only=True)
    saved["trilab"]["vocabulary"] = CHARACTERS[:-2] + "\ud83d\U0001f642"
    torch.save(saved, path)
    listed = json.loads((export(path, format="safetensors") / "vocabulary.json").read_text())
    assert [each["character"] for each in listed[-2:]] == ["\ud83d", "\U0001f642"]


@pytest.mark.parametrize("kind", ["safetensors", "torch-export", pytest.param("onnx", marks=pytest.mark.slow)])
def test_nothing_that_is_written_tells_a_path_of_this_machine(tmp_path: Path, kind: Any) -> None:
    folder = export(checkpoint(tmp_path, *SHALLOW), format=kind)
    for file in folder.iterdir():
        for place in (ROOT, tmp_path, Path(sys.prefix), Path.home() / ".cache"):
            assert str(place).encode() not in file.read_bytes(), file.name
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    folder = export(path, format="safetensors")
    (folder / "model.safetensors").write_text("mine")
    with pytest.raises(BadInput, match="is there already, and is left as it is"):
        export(path, format="safetensors")
    assert (folder / "model.safetensors").read_text() == "mine"


@pytest.mark.parametrize("out", ["x.ckpt/inside", "x.ckpt", "zero\0", "n" * 300])
def test_a_folder_that_cannot_be_made_is_told_and_leaves_nothing(tmp_path: Path, out: str) -> None:
    path = checkpoint(tmp_path)
    with pytest.raises(BadInput):
        export(path, format="safetensors", out=tmp_path / out)
    assert [file.name for file in tmp_path.iterdir()] == ["x.ckpt"]


EXPONENTIAL = """
import torch
from trilab.agg.base import Aggregation

class Agg(Aggregation):
    def mix(self, x, v):
        return v * torch.linalg.matrix_exp(x.mT @ x).diagonal(dim1=-2, dim2=-1)[:, None]
"""


@pytest.mark.slow
def test_an_operation_that_onnx_does_not_have_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exponential.py").write_text(EXPONENTIAL)
    monkeypatch.syspath_prepend(tmp_path)
    config = tree("agg=none")
    torch.save(content(changed(config, "agg._target_", "exponential.Agg"), config), tmp_path / "x.ckpt")
    with pytest.raises(BadInput, match=r"cannot be exported as ONNX: it has no operation for aten\.linalg_matrix_exp"):
        export(tmp_path / "x.ckpt", format="onnx", trust=True)
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
def test_where_nothing_can_run_an_onnx_file_its_readme_says_that_nothing_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trilab.export.onnx.find_spec", lambda name: None)
    folder = export(checkpoint(tmp_path, *SHALLOW), format="onnx")
    assert "Not compared with trilab's own logits: onnxruntime is not installed" in (folder / "README.txt").read_text()


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 33, 64])
def test_triangles_are_solved_by_halves_as_torch_solves_them(n: int) -> None:
    draws = torch.Generator().manual_seed(n)
    A, B = (torch.randn(2, n, k, generator=draws, dtype=torch.float64) for k in (n, 3))
    A, how = A / 3, {"upper": False, "left": True, "unitriangular": True}
    assert torch.allclose(solved_by_halves(A, B, **how), torch.linalg.solve_triangular(A, B, **how))


DECIDES = """
from trilab.agg.base import Aggregation

class Agg(Aggregation):
    def mix(self, x, v):
        return v if float(x.sum()) > 0 else -v
"""


def test_a_class_of_one_s_own_that_decides_by_values_is_refused_as_a_program_and_its_weights_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decides.py").write_text(DECIDES)
    monkeypatch.syspath_prepend(tmp_path)
    config = tree("agg=none")
    torch.save(content(changed(config, "agg._target_", "decides.Agg"), config), tmp_path / "x.ckpt")
    with pytest.raises(BadInput, match="add --trust"):
        export(tmp_path / "x.ckpt", format="safetensors")
    for out, first in ((None, "export"), (tmp_path / "a" / "b" / "c", "a")):
        with pytest.raises(BadInput, match=r"torch\.export does not take it"):
            export(tmp_path / "x.ckpt", format="torch-export", out=out, trust=True)
        assert not (tmp_path / first).exists()
    (tmp_path / "export").mkdir()
    with pytest.raises(BadInput, match=r"torch\.export does not take it"):
        export(tmp_path / "x.ckpt", format="torch-export", trust=True)
    assert list((tmp_path / "export").iterdir()) == []  # it was there before
    assert (export(tmp_path / "x.ckpt", format="safetensors", trust=True) / "model.safetensors").exists()


@pytest.mark.parametrize(("kind", "needed"), [("safetensors", "safetensors"), ("onnx", "onnx and onnxscript")])
def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, needed: str
) -> None:
    monkeypatch.setattr("trilab.export.find_spec", lambda name: None)
    with pytest.raises(BadInput) as caught:
        export(tmp_path / "x.ckpt", format=kind)
    assert f"--format {kind} needs {needed}, which" in str(caught.value)
    assert "pip install 'trilab[export]'" in str(caught.value)


def test_the_command_exports_a_run_into_its_own_folder_and_prints_where(
    trilab: Callable[..., Outcome], train: Callable[..., Outcome], text: Path
) -> None:
    run = train("agg=softmax").run
    text.unlink()
    done = trilab("export", run)
    assert done.code == 0, done.err
    assert done.out == f"{run / 'export' / 'safetensors'}\n"
    assert sorted(file.name for file in (run / "export" / "safetensors").iterdir()) == [
        *("README.txt", "config.json", "model.safetensors", "vocabulary.json")
    ]
    last = trilab("export", run / "checkpoints" / "last.ckpt")
    assert last.out == f"{run / 'export' / 'last-safetensors'}\n"
    empty = trilab("export", run, "--out", "")
    assert (empty.code, empty.err) == (2, "--out is empty: give a folder to make, or leave it out.\n")
    again = trilab("export", run)
    assert again.code == 2
    assert len(again.err.splitlines()) == 1
    assert trilab("report", run.parent).code == 0
    assert "Finished already" in train("agg=softmax").out or not text.exists()
