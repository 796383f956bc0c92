"""The scaffolding keeps its word: versions, names, walls that no import contract can hold."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(line) for line in lines] for name, lines in PYPROJECT["project"]["optional-dependencies"].items()
}
OPTIONAL = [requirement for name, extra in EXTRAS.items() if name != "dev" for requirement in extra]
DEV = [requirement for requirement in EXTRAS["dev"] if requirement.name != "trilab"] + OPTIONAL
BUILD = [Requirement(line) for line in PYPROJECT["build-system"]["requires"]]
LOCK_LINES = [
    line for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines() if not line.startswith("#")
]
LOCK = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LOCK_LINES)}
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("requirement", [*RUNTIME, *DEV], ids=str)
def test_the_lock_satisfies_every_range_of_pyproject(requirement: Requirement) -> None:
    assert requirement.specifier.contains(LOCK[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("requirement", BUILD, ids=str)
def test_what_builds_the_project_is_locked_so_that_setup_needs_no_second_environment(requirement: Requirement) -> None:
    assert requirement.specifier.contains(LOCK[canonicalize_name(requirement.name)])


def test_the_lock_names_exact_public_versions_in_order() -> None:
    assert sorted(LOCK_LINES, key=str.upper) == LOCK_LINES
    assert len(LOCK) == len(LOCK_LINES)
    for version in LOCK.values():
        assert Version(version).local is None


def test_the_lock_holds_what_the_project_needs_and_nothing_else() -> None:
    needed: set[str] = set()
    waiting = [(canonicalize_name(r.name), extra) for r in [*RUNTIME, *DEV] for extra in ("", *r.extras)]
    while waiting:
        name, extra = waiting.pop()
        # what CUDA builds of torch ask for is left for pip to resolve on each machine
        if f"{name}[{extra}]" in needed or re.match("nvidia-|cuda-|triton$", name):
            continue
        needed |= {name, f"{name}[{extra}]"}
        for line in metadata.requires(name) or []:
            r = Requirement(line)
            if r.marker is None or r.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(r.name), e) for e in ("", *r.extras)]
    needed.remove("pip")  # what the lock is installed with
    assert {name for name in needed if "[" not in name} == set(LOCK)


def test_the_package_imports_what_pyproject_declares_and_nothing_else() -> None:
    imported = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    homes = metadata.packages_distributions()
    # Triton comes with torch where torch can use it, in the version that fits
    named = imported - sys.stdlib_module_names - {"trilab", "triton"}
    used = {canonicalize_name(homes[name][0]) for name in named}
    used |= {
        "hydra-joblib-launcher",
        "hydra-submitit-launcher",
        "hydra-optuna-sweeper",
    }  # named in conf/, found by Hydra
    # imported by Lightning's logger, by name in dashboard.py, by torch's exporter
    used |= {"tensorboard", "wandb-workspaces", "onnxscript"}
    assert used == {canonicalize_name(r.name) for r in [*RUNTIME, *OPTIONAL]}


def test_whoever_develops_has_every_extra() -> None:
    [own] = [requirement for requirement in EXTRAS["dev"] if requirement.name == "trilab"]
    assert own.extras == EXTRAS.keys() - {"dev"}


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils", "util", "common", "helpers", "helper", "misc"}
    found = [path for top in ("src", "tests", "conf") for path in (ROOT / top).rglob("*") if path.stem in drawers]
    assert not found


def test_every_strategy_is_one_module_and_one_yaml_of_the_same_name() -> None:
    configs = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "conf/agg").glob("*.yaml")
    }
    modules = {path.stem for path in (ROOT / "src/trilab/agg").glob("*.py")} - {"__init__", "base"}
    assert set(configs) == modules
    for name, config in configs.items():
        assert config["_target_"].rpartition(".")[0] == f"trilab.agg.{name}"


@pytest.mark.parametrize("module", ["trilab", "trilab.config", "trilab.launch", "trilab.cli", "trilab.report"])
def test_help_and_errors_need_not_wait_for_torch(module: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"import {module}, sys; print(*sys.modules)"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert module in loaded
    assert not {"torch", "lightning", "wandb"} & set(loaded)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_keeps_neither_results_nor_texts_nor_the_environment(tmp_path: Path) -> None:
    def ignored(path: str) -> bool:
        return subprocess.run(["git", "check-ignore", "--quiet", path], cwd=tmp_path).returncode == 0

    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for path in ("outputs/part03/report.csv", "data/input.txt", "data/notes/a.txt", ".venv/bin/python", "dist/a.whl"):
        assert ignored(path), path
    for path in ("outputs/.gitkeep", "data/README.md", "conf/data/file.yaml", "src/trilab/corpora/file.py"):
        assert not ignored(path), path


def test_the_wheel_carries_every_config_and_the_mark_of_types(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    configs = {f"trilab/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert configs | {"trilab/py.typed", "trilab/cli.py", "hydra_plugins/trilab_sweeper.py"} <= inside
    assert {f"trilab/report/page/templates/page.{kind}" for kind in ("html", "css", "js")} <= inside
    assert all(name.startswith(("trilab/", "trilab-", "hydra_plugins/")) for name in inside)


def test_hooks_of_git_run_from_the_environment_and_fetch_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


def test_contributing_says_what_every_file_of_the_package_is_for() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = ROOT / "src/trilab"
    inside = [path for path in SOURCES if path.is_relative_to(package) and path.name != "__init__.py"]
    names = {path.relative_to(package).parts[0] for path in inside}
    assert not {name for name in names if f"`{name}" not in text}


def test_every_test_that_the_page_of_reliability_names_is_there() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)`(?:: ([^|;`…]+))?", page)
    assert len(named) > 20
    for file, words in named:
        tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(file))
        assert re.search(rf"^def test_{re.sub('[^a-z0-9]+', '_', words.lower().strip())}", tests, re.MULTILINE), words
