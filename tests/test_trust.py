"""Runs that came from elsewhere: their configs name no code but ours, or whoever trains them again says so."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trilab.errors import BadInput
from trilab.report.runs import read_run
from trilab.trust import refuse_foreign_code

from .conftest import Outcome


@pytest.mark.parametrize(
    "section",
    [
        {"agg": {"_target_": "trilab.agg.attention.SelfAttention"}},
        {"model": {"_target_": "trilab.model.LanguageModel", "agg_per_layer": None}},
        {"model": {"agg_per_layer": [{"_target_": "trilab.agg.none.Identity"}]}},
        {"optim": {"_target_": "trilab.optim.Optim"}},
        {"data": {"_target_": "trilab.corpora.file.read"}},
        {"data": {"_target_": "trilab.corpora.tiny_shakespeare.read"}},
    ],
)
def test_what_trilab_s_own_configs_name_needs_no_trust(section: dict[str, Any]) -> None:
    refuse_foreign_code(section, "config.yaml")


@pytest.mark.parametrize(
    "path", ["trilab.corpora.file.nope", "trilab.corpora.nope.read", "trilab.corpora.iambic.sha256"]
)
def test_a_function_that_gives_no_text_is_refused_in_the_place_of_a_source(path: str) -> None:
    with pytest.raises(BadInput, match=r"config\.yaml has data\._target_=.*, which is no source of texts"):
        refuse_foreign_code({"data": {"_target_": path}}, "config.yaml")


def test_a_key_is_shown_short_and_without_commanding_the_terminal() -> None:
    with pytest.raises(BadInput) as caught:
        refuse_foreign_code({"\x1b]0;mine\x07" + "k" * 3000: {"_target_": "os.system"}}, "config.yaml")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert str(caught.value).endswith("add --trust.")


def test_reproduce_imports_nothing_that_a_config_from_elsewhere_names_unless_it_is_trusted(
    tmp_path: Path, train: Callable[..., Outcome], trilab: Callable[..., Outcome]
) -> None:
    run = train("agg=none").run
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["agg"] = {"_target_": "from_elsewhere.Agg"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "from_elsewhere.py").write_text(
        f"open({str(tmp_path / 'canary')!r}, 'w').close()\nfrom trilab.agg.none import Identity as Agg\n"
    )
    assert trilab("report", run.parent).code == 0
    arguments = ("reproduce", run.parent / "report.json", "--row", "none")
    done = trilab(*arguments)
    assert done.code == 2
    [line] = done.err.splitlines()
    assert "agg._target_='from_elsewhere.Agg'" in line
    assert "add --trust" in line
    assert not (tmp_path / "canary").exists()
    assert trilab(*arguments, "--trust").code in (0, 1)
    assert (tmp_path / "canary").exists()


def test_a_config_of_a_few_lines_that_would_be_a_billion_values_is_unreadable_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    run = read_run(tmp_path)
    assert run.status == "unreadable"
    assert "aliases" in run.reason


def test_a_pipe_in_the_place_of_a_report_is_not_waited_for(tmp_path: Path, trilab: Callable[..., Outcome]) -> None:
    os.mkfifo(tmp_path / "report.json")
    done = trilab("reproduce", tmp_path / "report.json", "--row", "a")
    assert done.code == 2
    assert "not a file" in done.err or "cannot be read" in done.err
