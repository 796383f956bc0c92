"""No secret of the environment lands in a file: keys, passwords in addresses, tokens of git remotes, netrc."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT, Outcome

SECRET = "PLANTED"  # in every secret below, and nowhere else

BREAKS = """
import os
from trilab.agg.none import Identity

class Breaks(Identity):
    def mix(self, x, v):
        key = os.environ["AWS_SECRET_ACCESS_KEY"]
        if self.training and x.requires_grad:
            raise RuntimeError("it breaks while it trains")
        return v
"""


def secrets(folder: Path) -> dict[str, str]:
    """Variables as they are on people's machines, and the files that they point at."""
    (folder / "netrc").write_text(f"machine api.wandb.ai login user password {SECRET}1{'a' * 32}\n")
    (folder / "netrc").chmod(0o600)
    proxy = f"http://user:{SECRET}2@127.0.0.1:9"
    return {
        "HOME": str(folder),
        "NETRC": str(folder / "netrc"),
        "WANDB_API_KEY": f"{SECRET}3{'b' * 32}",
        "AWS_SECRET_ACCESS_KEY": f"{SECRET}4",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
        "PIP_INDEX_URL": f"http://user:{SECRET}5@127.0.0.1:9/simple",
        "SOME_TOKEN": f"{SECRET}6",
    }


def told(folder: Path) -> list[str]:
    """Files that hold a secret, or are named by one."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found
    return [
        str(path.relative_to(folder)) for path in found if SECRET.encode() in path.read_bytes() or SECRET in path.name
    ]


@pytest.fixture
def repository(tmp_path: Path, text: Path) -> Path:
    """A clone whose remote carries a token, with a change that is not committed: what W&B could note down."""
    (tmp_path / "breaks.py").write_text(BREAKS)
    for command in (
        ["init", "--quiet"],
        ["remote", "add", "origin", f"https://user:{SECRET}7@git.example/x.git"],
        ["add", "breaks.py"],
        ["-c", "user.name=a", "-c", f"user.email={SECRET}8@b", "commit", "--quiet", "--message=x"],
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    (tmp_path / "breaks.py").write_text(f"{BREAKS}# {SECRET}9\n")
    return tmp_path


def trained(folder: Path, text: Path, *arguments: str, code: int, **more: str) -> str:
    """What train.py says, as a process that has all these secrets; no server can be reached."""
    keys = ("data=file", f"data.path={text}", "trainer.max_steps=2", "trainer.val_every=2", "trainer.log_every=2")
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", *arguments, *keys, "callbacks.sample_chars=5"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("WANDB_")} | secrets(folder) | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("agg=none", "logger=wandb"), 0),
        pytest.param(
            ("agg=none", "agg._target_=breaks.Breaks", "check.causality=off", "logger=wandb"), 1, marks=pytest.mark.slow
        ),
        pytest.param(("-m", "agg=none,softmax", "logger=wandb"), 0, marks=pytest.mark.slow),
        pytest.param(
            ("-m", "agg=none", "seed=1,2", "agg._target_=breaks.Breaks", "check.causality=off", "logger=wandb"),
            1,
            marks=pytest.mark.slow,
        ),
        pytest.param(("agg=none", "trainer.devices=2", "logger=wandb"), 0, marks=pytest.mark.slow),
    ],
    ids=["a run", "a run that fails", "a sweep", "a sweep that fails", "two processes"],
)
def test_no_secret_is_in_any_file_or_shown(repository: Path, text: Path, arguments: tuple[str, ...], code: int) -> None:
    said = trained(repository, text, *arguments, code=code, WANDB_MODE="offline")
    assert SECRET not in said
    assert told(repository / "outputs") == []
    assert list((repository / "outputs" / "wandb").glob("offline-run-*/*.wandb"))  # W&B's own files were among them


@pytest.mark.slow
@pytest.mark.parametrize("address", [f"http://user:{SECRET}a@127.0.0.1:9", f"http://user:{SECRET}/a@127.0.0.1:9"])
def test_a_password_in_the_address_of_a_wandb_server_is_not_repeated_where_it_cannot_be_reached(
    repository: Path, text: Path, address: str
) -> None:
    said = trained(repository, text, "agg=none", code=0, WANDB_BASE_URL=address)
    assert "W&B offline" in said or "W&B cannot be used" in said
    assert SECRET not in said
    assert told(repository / "outputs") == []


def test_a_source_that_cannot_be_fetched_does_not_repeat_passwords_of_proxies_and_indexes(
    tmp_path: Path, train: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in secrets(tmp_path).items():
        monkeypatch.setenv(name, value)
    done = train("data=tiny_shakespeare", f"data.path={tmp_path / 'cold.txt'}", quick=False)
    assert done.code == 2
    assert "cannot be fetched" in done.err
    assert SECRET not in done.err


def test_the_secrets_of_these_tests_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "log").write_text(f"key={SECRET}0")
    assert told(tmp_path / "outputs") == ["log"]
