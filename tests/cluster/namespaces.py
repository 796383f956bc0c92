"""Two nodes on one machine: network namespaces with a link between them that can be cut."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


def missing() -> str | None:
    """Why there can be no network namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "not installed: ip (Debian, Ubuntu: iproute2)"
    name = f"trilab-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "delete", name)
    return None


@dataclass(frozen=True)
class Node:
    """One of the two: run a command there with `inside`."""

    namespace: str
    interface: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)


@dataclass(frozen=True)
class Link:
    """What joins two nodes."""

    nodes: tuple[Node, Node]

    def cut(self) -> None:
        self._set("down")

    def mend(self) -> None:
        self._set("up")

    def _set(self, state: str) -> None:
        there = self.nodes[1]
        _ip("-n", there.namespace, "link", "set", there.interface, state)


@contextmanager
def two_nodes() -> Iterator[Link]:
    """Make two namespaces and a link between them, and remove them."""
    own = os.getpid()
    nodes = (
        Node(f"trilab-{own}-a", f"tl{own}a", "10.213.7.1"),
        Node(f"trilab-{own}-b", f"tl{own}b", "10.213.7.2"),
    )
    here, there = nodes
    with ExitStack() as made:
        for node in nodes:
            _ip("netns", "add", node.namespace)
            made.callback(_ip, "netns", "delete", node.namespace)
        _ip("-n", here.namespace, "link", "add", here.interface, "type", "veth", "peer", there.interface)
        _ip("-n", here.namespace, "link", "set", there.interface, "netns", there.namespace)
        for node in nodes:
            _ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", node.interface)
            _ip("-n", node.namespace, "link", "set", "lo", "up")
            _ip("-n", node.namespace, "link", "set", node.interface, "up")
        yield Link(nodes)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
