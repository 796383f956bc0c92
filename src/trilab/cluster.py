"""What a launcher (torchrun, SLURM) says of this process: its place among those of its run, and how to be run again."""

import logging
import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from trilab.errors import BadInput

log = logging.getLogger("trilab")


@dataclass(frozen=True)
class Place:
    """Where this process stands among those that a launcher started for one run.

    `node` counts machines from 0. `rank` is this process's own, where the launcher started one process a rank, or None
    where this process starts the ranks of its machine itself. At `address` and `port` all ranks of the run meet; rank 0
    listens there.
    """

    node: int
    rank: int | None
    address: str
    port: int

    @property
    def leads(self) -> bool:
        """Whether this is the one process that holds the run's folder and writes its summary."""
        return self.node == 0 and not self.rank

    def variables(self, num_nodes: int, devices: int, local: int = 0) -> dict[str, str]:
        """What a rank finds in its environment, in torchrun's names.

        Args:
            num_nodes, devices: machines, and ranks on each.
            local: number of the rank on this machine, where this process starts them.
        """
        rank = self.node * devices + local if self.rank is None else self.rank
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % devices),
            "NODE_RANK": str(self.node),
            "WORLD_SIZE": str(num_nodes * devices),
            "LOCAL_WORLD_SIZE": str(devices),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def place(num_nodes: int, devices: int, environ: Mapping[str, str]) -> Place:
    """This process's place in a run of num_nodes × devices ranks.

    torchrun starts a process a rank. srun starts one a rank or one a machine. Without either, this process is the only
    one. A SLURM batch script has counts of tasks in its environment too, but no step of its own: it is no launcher.

    Args:
        num_nodes: machines of the run, trainer.num_nodes.
        devices: ranks on each, trainer.devices.
        environ: the process's environment.
    Raises:
        BadInput: what was started does not fit these numbers.
    """
    if "RANK" in environ:
        return _of_torchrun(num_nodes, devices, environ)
    if "SLURM_STEP_NUM_TASKS" in environ:
        return _of_srun(num_nodes, devices, environ)
    if num_nodes > 1:
        raise BadInput(
            f"trainer.num_nodes={num_nodes}, but nothing has started this command on {num_nodes} machines: neither "
            "RANK (torchrun) nor SLURM_STEP_NUM_TASKS (srun) is set. Start it with torchrun or srun on every machine, "
            "with hydra/launcher=slurm_nodes, or set trainer.num_nodes=1."
        )
    return Place(0, None, "127.0.0.1", _free_port())


def _of_torchrun(num_nodes: int, devices: int, environ: Mapping[str, str]) -> Place:
    world, local, rank = (_number(environ, name) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK"))
    if (world, local) != (num_nodes * devices, devices):
        raise BadInput(
            f"torchrun started {local} processes on this machine and {world} in all (LOCAL_WORLD_SIZE, WORLD_SIZE), "
            f"but trainer.devices={devices} and trainer.num_nodes={num_nodes} make {num_nodes * devices}. Give it "
            f"--nnodes {num_nodes} --nproc-per-node {devices}, or set trainer.devices={local} "
            f"trainer.num_nodes={max(1, world // local)}."
        )
    address = _text(environ, "MASTER_ADDR")
    return Place(rank // devices, rank, address, _number(environ, "MASTER_PORT"))


def _of_srun(num_nodes: int, devices: int, environ: Mapping[str, str]) -> Place:
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS")
    nodes = _number(environ, "SLURM_STEP_NUM_NODES")
    node, rank, local = (_number(environ, name) for name in ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"))
    world = num_nodes * devices
    if nodes != num_nodes or tasks not in (num_nodes, world):
        raise BadInput(
            f"srun started {tasks} tasks on {nodes} nodes (SLURM_STEP_NUM_TASKS, SLURM_STEP_NUM_NODES), but "
            f"trainer.num_nodes={num_nodes} and trainer.devices={devices} need {num_nodes} nodes with {devices} tasks "
            f"each, or with one, which starts the others. Give it --nodes={num_nodes} --ntasks-per-node={devices}, or "
            "set trainer.num_nodes and trainer.devices to what there is."
        )
    per_node = tasks // num_nodes
    if rank != node * per_node + local:
        raise BadInput(
            f"srun started task {rank} (SLURM_PROCID) as number {local} (SLURM_LOCALID) of node {node} (SLURM_NODEID), "
            f"but with {per_node} on each node in turn it must be task {node * per_node + local}. Give srun "
            f"--ntasks-per-node={per_node} --distribution=block."
        )
    own = rank if tasks == world > 1 else None
    if tasks == 1:
        return Place(0, None, "127.0.0.1", _free_port())
    return Place(node, own, first_host(_text(environ, "SLURM_STEP_NODELIST")), _port_of_step(environ))


def first_host(nodelist: str) -> str:
    """The first host name of a list as SLURM writes it: `node[01-03,7],login` → `node01`.

    Raises:
        BadInput: what is no such list.
    """
    first = re.match(r"(?:[^\[\],\s]|\[\d+[-,\d]*\])+(?=,|$)", nodelist)
    if not first:
        raise BadInput(f"SLURM_STEP_NODELIST={nodelist!r} is no list of nodes, such as node[01-03,7].")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0])


def requeue(environ: Mapping[str, str]) -> None:
    """Have SLURM run this job again; that it refuses is told, and is no error.

    For every process of a job that has been told of its end (SIGUSR1, SIGUSR2), after all is saved: the first asks.
    SLURM then ends them all. A job that submitit started is handed back to submitit, which counts its time-outs: the
    signal that it listens to must be its own again. Its handler ends the process.
    """
    if environ.get("RANK", environ.get("SLURM_PROCID", "0")) != "0":
        return
    if environ.get("SUBMITIT_EXECUTOR") == "slurm":
        signal.raise_signal(signal.Signals[f"SIG{environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"])
        return
    array = environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{environ.get('SLURM_ARRAY_TASK_ID')}" if array else _text(environ, "SLURM_JOB_ID")
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
        said = done.stderr.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    else:
        if done.returncode == 0:
            log.info("Saved; SLURM runs job %s again, and it goes on from there.", job)
            return
    log.error(
        "SLURM did not requeue job %s: %s. Submit it again: it goes on from the run's last checkpoint.", job, said
    )


def _port_of_step(environ: Mapping[str, str]) -> int:
    """The same on every node, another for the job or step beside it; below those of outgoing connections."""
    job, step = _number(environ, "SLURM_JOB_ID"), _number(environ, "SLURM_STEP_ID")
    return 15_000 + (31 * job + step) % 15_000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise BadInput(f"{name} is not set, but it belongs to what torchrun or srun set. Start it through either anew.")
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    value = _text(environ, name)
    if not value.isdecimal():
        raise BadInput(f"{name}={value} in the environment must be a whole number, as torchrun and srun set it.")
    return int(value)
