"""What torchrun and SLURM say of a process is read as they mean it, and what does not fit is refused with numbers."""

import logging
import re
import signal
from pathlib import Path

import hydra
import pytest

from trilab.cluster import Place, first_host, place, requeue
from trilab.errors import BadInput

from .conftest import ROOT


def torchrun(*, rank: int, world: int, local: int) -> dict[str, str]:
    """What torchrun sets for a process."""
    ours = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local, "LOCAL_RANK": rank % local}
    return {name: str(value) for name, value in ours.items()} | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}


def srun(*, tasks: int, nodes: int, task: int, node: int, local: int, job: int = 4711, step: int = 0) -> dict[str, str]:
    """What srun sets for a task, the counts of the batch script around it included."""
    ours = {
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_PROCID": task,
        "SLURM_NODEID": node,
        "SLURM_LOCALID": local,
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": step,
        "SLURM_NTASKS": tasks,
    }
    return {name: str(value) for name, value in ours.items()} | {
        "SLURM_STEP_NODELIST": "node[07-08]",
        "SLURM_JOB_NODELIST": "node[06-08]",
    }


@pytest.mark.parametrize("devices", [1, 4])
def test_a_process_that_nobody_launched_starts_the_ranks_of_its_machine(devices: int) -> None:
    found = place(1, devices, {})
    assert (found.node, found.rank, found.address) == (0, None, "127.0.0.1")
    assert 0 < found.port < 65_536


def test_the_port_of_a_machine_alone_is_another_each_time() -> None:
    assert len({place(1, 1, {}).port for _ in range(20)}) > 1


@pytest.mark.parametrize(("rank", "node"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_under_torchrun_each_process_is_a_rank_and_all_meet_at_its_master(rank: int, node: int) -> None:
    assert place(2, 2, torchrun(rank=rank, world=4, local=2)) == Place(node, rank, "10.0.0.1", 29400)


def test_torchrun_inside_a_step_of_slurm_has_the_say() -> None:
    environ = torchrun(rank=1, world=2, local=2) | srun(tasks=1, nodes=1, task=0, node=0, local=0)
    assert place(1, 2, environ) == Place(0, 1, "10.0.0.1", 29400)


@pytest.mark.parametrize(("task", "node", "local"), [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)])
def test_srun_with_a_task_a_rank_gives_each_its_rank(task: int, node: int, local: int) -> None:
    found = place(2, 2, srun(tasks=4, nodes=2, task=task, node=node, local=local))
    assert (found.node, found.rank, found.address) == (node, task, "node07")


@pytest.mark.parametrize("node", [0, 1])
def test_srun_with_a_task_a_node_leaves_the_ranks_to_each_and_names_where_they_meet(node: int) -> None:
    found = place(2, 4, srun(tasks=2, nodes=2, task=node, node=node, local=0))
    assert (found.node, found.rank, found.address) == (node, None, "node07")


def test_srun_with_one_task_is_as_no_launcher_at_all() -> None:
    found = place(1, 2, srun(tasks=1, nodes=1, task=0, node=0, local=0))
    assert (found.node, found.rank, found.address) == (0, None, "127.0.0.1")


def test_the_counts_of_a_batch_script_are_those_of_its_job_and_start_nothing() -> None:
    batch = {"SLURM_JOB_ID": "9", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "node[1-2]"}
    assert place(1, 4, batch).rank is None
    with pytest.raises(BadInput, match=r"trainer\.num_nodes=2.*srun"):
        place(2, 2, batch)


def test_all_nodes_of_a_step_agree_on_a_port_and_the_steps_beside_it_have_others() -> None:
    def port(node: int, job: int, step: int) -> int:
        return place(2, 2, srun(tasks=2, nodes=2, task=node, node=node, local=0, job=job, step=step)).port

    assert port(0, 4711, 0) == port(1, 4711, 0)
    ports = [port(0, job, step) for job in range(4711, 4811) for step in range(4)]
    assert len(set(ports)) == len(ports)
    assert all(1024 < port < 32_768 for port in ports)


@pytest.mark.parametrize(
    ("found", "leads"),
    [
        (Place(0, None, "a", 1), True),
        (Place(1, None, "a", 1), False),
        (Place(0, 0, "a", 1), True),
        (Place(0, 1, "a", 1), False),
        (Place(1, 2, "a", 1), False),
    ],
)
def test_one_process_of_a_run_leads(found: Place, leads: bool) -> None:
    assert found.leads is leads


def test_the_ranks_of_a_run_are_counted_over_its_machines() -> None:
    starting = [Place(node, None, "a", 1).variables(2, 3, number) for node in range(2) for number in range(3)]
    started = [Place(rank // 3, rank, "a", 1).variables(2, 3) for rank in range(6)]
    assert starting == started
    assert [v["RANK"] for v in started] == list("012345")
    assert [v["LOCAL_RANK"] for v in started] == list("012012")
    assert {v["WORLD_SIZE"] for v in started} == {"6"}


def test_a_process_with_the_variables_of_its_place_finds_the_same_place_in_them() -> None:
    here = place(2, 2, srun(tasks=4, nodes=2, task=3, node=1, local=1))
    assert place(2, 2, here.variables(2, 2)) == here


@pytest.mark.parametrize(
    ("num_nodes", "devices", "environ", "numbers"),
    [
        (2, 1, {}, ["trainer.num_nodes=2", "RANK", "SLURM_STEP_NUM_TASKS"]),
        (2, 4, torchrun(rank=0, world=2, local=1), ["1 processes", "2 in all", "trainer.devices=4", "make 8"]),
        (1, 4, torchrun(rank=0, world=4, local=2), ["2 processes", "4 in all", "trainer.num_nodes=2"]),
        (2, 2, srun(tasks=3, nodes=2, task=0, node=0, local=0), ["3 tasks", "2 nodes", "--ntasks-per-node=2"]),
        (1, 1, srun(tasks=4, nodes=1, task=0, node=0, local=0), ["4 tasks", "trainer.devices=1"]),
        (2, 1, srun(tasks=2, nodes=1, task=1, node=0, local=1), ["2 tasks on 1 nodes", "--nodes=2"]),
        (2, 2, srun(tasks=4, nodes=2, task=1, node=1, local=0), ["task 1", "task 2", "--distribution=block"]),
    ],
)
def test_what_does_not_fit_the_trainer_is_refused_with_both_numbers(
    num_nodes: int, devices: int, environ: dict[str, str], numbers: list[str]
) -> None:
    with pytest.raises(BadInput) as refused:
        place(num_nodes, devices, environ)
    for text in numbers:
        assert text in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("WORLD_SIZE", ""), ("WORLD_SIZE", "two"), ("MASTER_ADDR", ""), ("MASTER_PORT", "-1")]
)
def test_a_broken_environment_is_refused_by_the_name_of_the_variable(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=name):
        place(1, 2, torchrun(rank=0, world=2, local=2) | {name: value})


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("vm", "vm"),
        ("a,b", "a"),
        ("node[01-03,7]", "node01"),
        ("node[7,9-12]", "node7"),
        ("node[001-128].cluster.org", "node001.cluster.org"),
        ("rack[1-2]n[03-04],login", "rack1n03"),
        ("gpu-a-1,gpu-b[2-3]", "gpu-a-1"),
    ],
)
def test_the_first_host_of_slurms_short_lists(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host


@pytest.mark.parametrize("nodelist", ["", "node[", "node[a-b]", "[", ",a", "(null) "])
def test_what_is_no_list_of_nodes_is_refused(nodelist: str) -> None:
    with pytest.raises(BadInput, match=re.escape(repr(nodelist))):
        first_host(nodelist)


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that writes down what it is asked, and refuses job 13."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    asked = tmp_path / "asked"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n[ "$2" != 13 ] || {{ echo "Job is gone" >&2; exit 1; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return asked


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is said of a run, whoever has turned it to the terminal before."""
    monkeypatch.setattr(logging.getLogger("trilab"), "propagate", True)
    caplog.set_level(logging.INFO, "trilab")
    return caplog


def test_a_job_is_requeued_by_its_number_and_one_of_an_array_by_both(
    scontrol: Path, said: pytest.LogCaptureFixture
) -> None:
    requeue({"SLURM_JOB_ID": "12"})
    requeue({"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "14", "SLURM_ARRAY_TASK_ID": "0"})
    assert scontrol.read_text().splitlines() == ["requeue 12", "requeue 14_0"]
    assert "job 14_0 again" in said.text


@pytest.mark.parametrize("other", [{"SLURM_PROCID": "1"}, {"SLURM_PROCID": "0", "RANK": "1"}])
def test_only_the_first_process_of_a_job_asks_for_it_to_be_run_again(scontrol: Path, other: dict[str, str]) -> None:
    requeue({"SLURM_JOB_ID": "12"} | other)
    assert not scontrol.exists()
    requeue({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "RANK": "0"})
    assert scontrol.read_text() == "requeue 12\n"


def test_a_job_that_submitit_started_is_requeued_by_submitits_own_handler(scontrol: Path) -> None:
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda signum, frame: heard.append(signum))
    try:
        requeue({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SUBMITIT_EXECUTOR": "slurm"})
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [signal.SIGUSR2]
    assert not scontrol.exists()


def test_a_job_that_slurm_will_not_requeue_is_told_of_with_its_words(
    scontrol: Path, said: pytest.LogCaptureFixture
) -> None:
    requeue({"SLURM_JOB_ID": "13"})
    assert "did not requeue job 13: Job is gone. Submit it again" in said.text


def test_a_node_without_scontrol_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    requeue({"SLURM_JOB_ID": "12"})
    assert "did not requeue job 12" in said.text


@pytest.mark.parametrize(
    ("preset", "nodes", "gpus"),
    [("slurm_cpu", 1, None), ("slurm_gpu", 1, 1), ("slurm_gpus", 1, 4), ("slurm_nodes", 2, 4)],
)
def test_a_preset_asks_for_what_the_trainer_of_the_command_line_needs(
    preset: str, nodes: int, gpus: int | None
) -> None:
    given = [
        f"hydra/launcher={preset}",
        "trainer.devices=4",
        "trainer.num_nodes=2",
        "threads=3",
        "experiment_name=mine",
    ]
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = hydra.compose("train", given, return_hydra_config=True)
    launcher = hydra.utils.instantiate(config.hydra.launcher, _target_="builtins.dict")
    assert (launcher["nodes"], launcher["gpus_per_node"], launcher["tasks_per_node"]) == (nodes, gpus, 1)
    assert launcher["additional_parameters"]["cpus-per-task"] == 12
    assert (launcher["name"], launcher["submitit_folder"]) == ("mine", "outputs/mine/.submitit/%j")


def test_every_preset_opens_with_its_command() -> None:
    for path in sorted((ROOT / "conf" / "hydra" / "launcher").glob("*.yaml")):
        assert f"#   python train.py -m hydra/launcher={path.stem} " in path.read_text(encoding="utf-8")
