"""A SLURM of the tests' own: two nodes on this machine, all that is theirs in one folder, nothing the machine's."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
PARTITION = "debug"
CPUS = 4  # a node; counted, not looked for
GPUS = 2  # a node; counted too: there are none, files bear the name

CONF = """
ClusterName=trilab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=30
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs={cpus} RealMemory=2000 Gres=gpu:{gpus}
NodeName={host}-two NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs={cpus} RealMemory=2000 Gres=gpu:{gpus}
PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES
"""


def missing() -> str | None:
    """Why there can be no SLURM here, or None."""
    if os.geteuid() != 0:
        return "a SLURM of our own needs root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)} (Debian, Ubuntu: slurm-wlm, munge)" if absent else None


@dataclass(frozen=True)
class Slurm:
    """A cluster that is up. `environ` leads SLURM's commands, and what they start, to it."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What one of SLURM's commands says."""
        return subprocess.run(
            command, env=os.environ | self.environ, check=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()

    def jobs(self, name: str) -> dict[str, str]:
        """State of each job of that name that waits or runs, by id (of an array's job: 7_0)."""
        lines = self.ask("squeue", "--noheader", "--array", "--name", name, "--format", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    def job(self, name: str, state: str) -> str:
        """The id of the only job of that name, once it is in that state."""

        def found() -> bool:
            return list(self.jobs(name).values()) == [state]

        until(found, f"job {name} {state}")
        return next(iter(self.jobs(name)))

    def hurry(self, job: str) -> None:
        """Have a job that was requeued begin now, not in two minutes, and wait until it has."""

        def begun() -> bool:
            found = self.ask("squeue", "--noheader", "--states=all", "--jobs", job, "--format", "%T %r")
            if found == "PENDING BeginTime":  # not while it still ends: SLURM sets the time after that
                self.ask("scontrol", "update", f"jobid={job}", "StartTime=now")
            return found.startswith("RUNNING")

        time.sleep(2)  # a node refuses a job that begins in the second in which it ended there
        until(begun, f"job {job} running again")


def until(holds: Callable[[], bool], what: str, *, seconds: float = 60) -> None:
    """Wait until it holds.

    Raises:
        TimeoutError: it did not in that time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} seconds for: {what}")
        time.sleep(0.05)


@contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """Bring a SLURM up and take it down, jobs included."""
    slurm = Slurm(folder)
    (folder / "state").mkdir()
    (folder / "plugstack.conf").touch()
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    ctld, one, two = _free_ports(3)
    (folder / "slurm.conf").write_text(
        CONF.format(folder=folder, ctld=ctld, one=one, two=two, host=host, cpus=CPUS, gpus=GPUS, partition=PARTITION)
    )
    files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
    with ExitStack() as daemons:
        # --force: the folders above ours may be closed to others, which munged finds odd
        daemons.enter_context(
            _daemon(slurm, "munged", "--force", "--foreground", f"--socket={folder}/munge.socket", *files)
        )
        until((folder / "munge.socket").exists, "munged")
        daemons.enter_context(_daemon(slurm, "slurmctld", "-D", "-c"))
        for node in (host, f"{host}-two"):
            daemons.enter_context(_daemon(slurm, "slurmd", "-D", "-N", node))
        until(lambda: _idle(slurm) == 2, f"two idle nodes; see {folder}/*.log", seconds=20)
        try:
            yield slurm
        finally:
            slurm.ask("scancel", "--user", "root")
            until(lambda: not slurm.ask("squeue", "--noheader"), "the end of all jobs", seconds=40)


def _idle(slurm: Slurm) -> int:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format", "%T"],
        env=os.environ | slurm.environ,
        capture_output=True,
        text=True,
    )
    return done.stdout.split().count("idle")


@contextmanager
def _daemon(slurm: Slurm, *command: str) -> Iterator[None]:
    process = subprocess.Popen(
        command, env=os.environ | slurm.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
