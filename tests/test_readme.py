"""What the README shows works as it stands there."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml

from trilab.laws import CONSTRUCTION_LAWS, LAWS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_strategy_shown_in_the_readme_keeps_every_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    config = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert code
    assert config
    module_name, _, class_name = yaml.safe_load(config[1])["_target_"].rpartition(".")
    (tmp_path / "recent.py").write_text(code[1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module_name, tmp_path / "recent.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module_name, module)
    spec.loader.exec_module(module)
    strategy = getattr(module, class_name)(8, 6)
    for law in LAWS:
        verdict = law(strategy)
        assert verdict.passed, verdict
    for construction_law in CONSTRUCTION_LAWS:
        verdict = construction_law(lambda _: getattr(module, class_name)(8, 6))
        assert verdict.passed, verdict


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("command", re.findall(r"^    python train\.py ([^#\n]*)", README, re.MULTILINE))
def test_every_group_choice_in_a_command_of_the_readme_exists(command: str) -> None:
    for part in command.split():
        key, _, value = part.strip("'").partition("=")
        ours = not key.startswith("hydra/")  # Hydra's own groups have choices from its plugins too
        if ours and (ROOT / "conf" / key).is_dir() and "glob" not in value:
            for choice in value.split(","):
                assert (ROOT / "conf" / key / f"{choice}.yaml").is_file(), part
