"""Files that somebody who wishes us ill could send in the place of a checkpoint, each made by a function of its own.

What would run code would make a file: the canary. What would fill the memory would take 300 MB of it or more.
"""

import io
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

MUCH = 300_000_000  # bytes


@dataclass(frozen=True)
class Hostile:
    """How to make one: `make(path, whole, canary)`, `whole` being the bytes of a good checkpoint."""

    name: str
    make: Callable[[Path, bytes, Path], object]


class Calls:
    """Pickled as a call of anything."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def calls(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Pickles that touch the canary when they are read, each in another way."""
    import builtins
    import functools
    import importlib
    import runpy
    import subprocess

    command, code = f"touch '{canary}'", f"open({str(canary)!r}, 'w').close()"
    for name, called, *arguments in (
        ("os.system", os.system, command),
        ("os.popen", os.popen, command),
        ("subprocess", subprocess.Popen, ["touch", str(canary)]),
        ("eval", builtins.eval, code),
        ("exec", builtins.exec, code),
        ("open", builtins.open, str(canary), "w"),
        ("touch", Path.touch, canary),
        ("partial", functools.partial(os.system, command)),
        ("import", importlib.import_module, "antigravity"),
        ("runpy", runpy.run_path, str(canary)),
        ("load", torch.load, str(canary)),
        ("numpy", np.save, str(canary), 0),
    ):
        for protocol in (0, 2, 4, 5):
            try:
                yield f"{name} in protocol {protocol}", pickle.dumps(Calls(called, tuple(arguments)), protocol)
            except (pickle.PicklingError, AttributeError, TypeError):
                continue
    touch = command.encode()
    yield "INST", b"(S'" + touch + b"'\nios\nsystem\n."
    yield "OBJ", b"(cos\nsystem\nS'" + touch + b"'\no."
    yield "NEWOBJ", b"\x80\x02cos\n_wrap_close\n)\x81."
    yield "STACK_GLOBAL", b"\x80\x04\x8c\x02os\x8c\x06system\x93X" + struct.pack("<I", len(touch)) + touch + b"\x85R."
    yield "EXT1", b"\x80\x02\x82\x01)R."
    yield "BUILD", b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb."
    yield "__builtin__", b"\x80\x02c__builtin__\neval\nX" + struct.pack("<I", len(code)) + code.encode() + b"\x85R."


def members(whole: bytes) -> dict[str, bytes]:
    """Name → content of each member of a checkpoint, whose folder in the zip is named as torch.save names it or not."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        return {f"archive/{name.partition('/')[2]}": archive.read(name) for name in archive.namelist()}


def zipped(contents: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of members."""
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", compression, compresslevel=1) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return stored.getvalue()


def with_pickle(whole: bytes, pickled: bytes) -> bytes:
    """A checkpoint with another data.pkl."""
    return zipped({**members(whole), "archive/data.pkl": pickled})


def saved(content: object, *, zipped: bool = True) -> bytes:
    """What torch.save writes."""
    stored = io.BytesIO()
    torch.save(content, stored, _use_new_zipfile_serialization=zipped)
    return stored.getvalue()


def changed(whole: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A checkpoint whose content was changed and saved again."""
    content = torch.load(io.BytesIO(whole), weights_only=True)
    change(content)
    return saved(content)


def in_weights(whole: bytes, tensor: object) -> bytes:
    """A checkpoint with one weight more."""
    return changed(whole, lambda content: content["state_dict"].update({"model.more": tensor}))


def directory_of(stored: bytes) -> int:
    """Where a small zip's list of members begins."""
    return int(struct.unpack("<L", stored[-6:-2])[0])


def overlapping(whole: bytes) -> bytes:
    """A zip whose list names the bytes of one member a thousand times: a thousand times as much as it is."""
    stored = zipped(members(whole) | {"archive/data/10000": bytes(1 << 20)})
    start = directory_of(stored)
    entry = stored.rindex(b"PK\1\2")
    before, last = stored[start:entry], stored[entry:-22]
    name = b"archive/data/10000"
    copies = [last.replace(name, b"archive/data/%d" % (10_001 + n)) for n in range(1000)]
    listed = before + b"".join(copies)
    count = before.count(b"PK\1\2") + 1000
    return stored[:start] + listed + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(listed), start, 0)


def many_members() -> bytes:
    """A list of a million members that are not there."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    listed = entry * 1_000_000
    return listed + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(listed), 0, 0)


def longer_storage(whole: bytes) -> bytes:
    """A tensor said to be a million times longer than its bytes."""
    content = members(whole)
    pickled = content["archive/data.pkl"]
    for operation, argument, at in pickletools.genops(pickled):
        if operation.name == "BINPERSID":
            break
        if operation.name in ("BININT1", "BININT2"):
            last = at, len(struct.pack("<B" if operation.name == "BININT1" else "<H", argument))
    at, length = last
    return with_pickle(whole, pickled[:at] + b"J" + struct.pack("<i", 1 << 30) + pickled[at + 1 + length :])


def _moved(stored: bytes, by: int) -> tuple[bytes, bytes]:
    """A zip's members and list, as they are when they begin `by` bytes later; and its wide end, which says so."""
    start, end = directory_of(stored), len(stored) - 22
    body, at = bytearray(stored[:end]), start
    count = 0
    while at < end:
        name, extra, comment = struct.unpack_from("<3H", body, at + 28)
        struct.pack_into("<L", body, at + 42, struct.unpack_from("<L", body, at + 42)[0] + by)
        at += 46 + name + extra + comment
        count += 1
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, end - start, start + by)
    return bytes(body), wide


def two_lists(whole: bytes, pickled: bytes) -> bytes:
    """A good zip with another between its members, and the way to it in the comment of the last entry of its list.

    zipfile looks 98 bytes before the end for a list with wide numbers and finds none; torch's reader follows the way.
    """
    contents = members(whole)
    *first, last = contents.items()
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        for name, content in first:
            archive.writestr(name, content)
        gap = stored.tell()
        other, wide = _moved(zipped({**contents, "archive/data.pkl": pickled}), gap)
        stored.write(other + wide)
        archive.start_dir = stored.tell()
        archive.writestr(*last)
        archive.filelist[-1].comment = struct.pack("<4sLQL", b"PK\6\7", 0, gap + len(other), 1)
    return stored.getvalue()


def twice(levels: int) -> list[Any]:
    """A list of the same list twice, of which each is one of the same list twice, and so on."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found, found]
    return found


def in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(levels: int) -> bytes:
    """The pickle of a checkpoint whose version is a list in a list in a list."""
    return b"\x80\x02}" + text("trilab") + b"}" + text("version") + b"]" * levels + b"a" * (levels - 1) + b"ss."


def text(value: str) -> bytes:
    """As a pickle has it."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def in_config(whole: bytes, key: Any, value: Any) -> bytes:
    """A checkpoint with one key more in its config."""
    return changed(whole, lambda content: content["trilab"]["config"].update({key: value}))


def sparse() -> torch.Tensor:
    """A sparse tensor of a gigantic shape."""
    return torch.sparse_coo_tensor(
        torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (1 << 40, 1 << 20), check_invariants=False
    )


def torchscript(path: Path, whole: bytes, canary: Path) -> None:
    """What torch.jit.save writes has code/ and constants.pkl besides."""
    path.write_bytes(zipped({**members(whole), "archive/constants.pkl": b"\x80\x02).", "archive/code/a.py": b"1"}))


def written(content: Callable[[bytes], bytes]) -> Callable[[Path, bytes, Path], object]:
    return lambda path, whole, canary: path.write_bytes(content(whole))


def pickled_code(kind: str, pickled: Callable[[Path], bytes]) -> list[Hostile]:
    return [
        Hostile(f"{kind} as a bare pickle", lambda path, whole, canary: path.write_bytes(pickled(canary))),
        Hostile(
            f"{kind} as data.pkl", lambda path, whole, canary: path.write_bytes(with_pickle(whole, pickled(canary)))
        ),
    ]


CODE = [
    file
    for kind, _ in calls(Path("canary"))
    for file in pickled_code(kind, lambda canary, kind=kind: dict(calls(canary))[kind])  # type: ignore[misc]
] + [
    Hostile(
        f"{where} that calls",
        lambda path, whole, canary, where=where: path.write_bytes(  # type: ignore[misc]
            changed(whole, lambda content: content[where].update({"more": Calls(os.system, (f"touch {canary}",))}))
        ),
    )
    for where in ("state_dict", "trilab")
]

BOMBS = [
    Hostile("deflated zeros", written(lambda whole: zipped({**members(whole), "archive/data/0": bytes(MUCH)}, 8))),
    Hostile("one member a thousand times", written(overlapping)),
    Hostile("a million members", written(lambda whole: many_members())),
    Hostile(
        "a bytearray by its size",
        written(lambda whole: with_pickle(whole, pickle.dumps(Calls(bytearray, (MUCH,)), 2))),
    ),
    Hostile(
        "a tensor by its size",
        written(lambda whole: with_pickle(whole, b"\x80\x02ctorch\nTensor\nJ\x00\x00\x00\x40\x85R.")),
    ),
    Hostile(
        "sixteen million dicts in a pickle that is short enough",
        written(lambda whole: with_pickle(whole, b"\x80\x02(" + b"}" * ((1 << 24) - 9) + b"t.")),
    ),
    Hostile("sixty million dicts", written(lambda whole: with_pickle(whole, b"\x80\x02(" + b"}" * (60 << 20) + b"t."))),
    Hostile(
        "a second list of members, with a bytearray by its size",
        written(
            lambda whole: two_lists(whole, b"\x80\x02c__builtin__\nbytearray\nJ" + struct.pack("<i", MUCH) + b"\x85R.")
        ),
    ),
    Hostile("two in two in the version", written(lambda whole: own(whole, version=twice(60)))),
    Hostile("two in two in the config", written(lambda whole: in_config(whole, "more", twice(60)))),
    Hostile("two in two in the best", written(lambda whole: own(whole, best={"val_loss": twice(60)}))),
    Hostile(
        "two in two as a key",
        written(lambda whole: with_pickle(whole, b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"K\x01s.")),
    ),
    Hostile("a list that is in itself", written(lambda whole: in_config(whole, "more", in_itself()))),
    Hostile(
        "a long text a thousand times",
        written(lambda whole: in_config(whole, "more", ["long" * 100_000] * 1000)),
    ),
    Hostile("a list in a list fifty thousand times", written(lambda whole: with_pickle(whole, nested(50_000)))),
    Hostile("a tuple as a key", written(lambda whole: in_config(whole, (1, 2), 1))),
    Hostile("a key of a million characters", written(lambda whole: in_config(whole, "k" * 1_000_000, 1))),
    Hostile("a storage past its bytes", written(longer_storage)),
    Hostile("a shape past its storage", written(lambda whole: in_weights(whole, torch.zeros(1).expand(1 << 40)))),
    Hostile("a sparse tensor", written(lambda whole: in_weights(whole, sparse()))),
    Hostile("a tensor without values", written(lambda whole: in_weights(whole, torch.empty(1 << 40, device="meta")))),
]

FOREIGN = [
    Hostile("nothing", written(lambda whole: b"")),
    Hostile("one byte", written(lambda whole: b"P")),
    Hostile("text", written(lambda whole: b"hello world\n" * 50)),
    Hostile("zeros", written(lambda whole: bytes(10_000))),
    Hostile("an empty zip", written(lambda whole: zipped({}))),
    Hostile("a zip of text", written(lambda whole: zipped({"a/b.txt": b"hello"}))),
    Hostile("a picture", written(lambda whole: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100))),
    Hostile("safetensors", written(lambda whole: struct.pack("<Q", 2) + b"{}")),
    Hostile("safetensors with a huge header", written(lambda whole: struct.pack("<Q", 1 << 60) + b"{}")),
    Hostile("onnx", written(lambda whole: b"\x08\x0a\x12\x07pytorch" + bytes(50))),
    Hostile("a numpy archive", written(lambda whole: zipped({"a.npy": b"\x93NUMPY"}))),
    Hostile("torch's format before zip", written(lambda whole: saved(torch.zeros(3), zipped=False))),
    Hostile("a checkpoint of torch's format before zip", written(lambda w: saved(loaded(w), zipped=False))),
    Hostile("torchscript", torchscript),
    Hostile("a quantised tensor", written(lambda w: in_weights(w, torch.zeros(3, dtype=torch.uint16)))),
    Hostile("a parameter", written(lambda w: in_weights(w, torch.nn.Parameter(torch.zeros(3))))),
    Hostile("a tensor in the place of weights", written(lambda w: changed(w, lambda c: c.update(state_dict=c)))),
    Hostile("no text in the place of the vocabulary", written(lambda w: own(w, vocabulary=3))),
    Hostile("no dict in the place of the config", written(lambda w: own(w, config=[1]))),
    Hostile("a member outside", written(lambda w: zipped({**members(w), "archive/../../x": b"x"}))),
    Hostile("an absolute member", written(lambda w: zipped({**members(w), "/etc/x": b"x"}))),
    Hostile("a folder", lambda path, whole, canary: path.mkdir()),
    Hostile("a pipe", lambda path, whole, canary: os.mkfifo(path)),
    Hostile("a device", lambda path, whole, canary: path.symlink_to("/dev/zero")),
    Hostile("a link to itself", lambda path, whole, canary: path.symlink_to(path)),
    Hostile("nowhere", lambda path, whole, canary: None),
]

ALL = [*CODE, *BOMBS, *FOREIGN]


def loaded(whole: bytes) -> dict[str, Any]:
    """The content of a good checkpoint."""
    content: dict[str, Any] = torch.load(io.BytesIO(whole), weights_only=True)
    return content


def own(whole: bytes, **keys: Any) -> bytes:
    """A checkpoint that says something else of itself."""
    return changed(whole, lambda content: content["trilab"].update(keys))
