"""A file as torch.save writes them, looked through before torch.load may have it.

torch.load with weights_only=True calls nothing that a file names. It still makes what the file asks for: an array of
any size, tensors of every kind, a storage said to be longer than its bytes, whatever a compressed member grows to. What
trilab writes needs none of that, so that here it is refused before anything of it is made.
"""

import math
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

MOST_DIRECTORY = 1 << 24  # bytes of the list of members; an entry takes about 70
MOST_PICKLED = 1 << 24  # bytes; a tensor takes about 130 of them
MOST_STEPS = 2_000_000  # operations of the pickle; a tensor takes about 40, and each may make an object of 64 bytes
MOST_REPEATED = 1 << 24  # characters that stand once in a pickle and are meant again
MOST_LEVELS = 100  # of lists in lists; what walks them without end runs out of stack at about 1000
MOST_KEY = 1000  # characters of a key; a weight's name takes about 50

ITEM_BYTES = {
    f"{kind}Storage": size
    for size, kinds in {
        1: ("Bool", "Byte", "Char"),
        2: ("BFloat16", "Half", "Short"),
        4: ("Float", "Int"),
        8: ("ComplexFloat", "Double", "Long"),
        16: ("ComplexDouble",),
    }.items()
    for kind in kinds
}

_MEMBER = re.compile(r"data\.pkl|data/\d+|version|byteorder|\.[a-z_]+|\.data/[a-z_]+")  # in the archive's own folder
_END = struct.Struct("<4s4H2LH")  # what a zip ends with: mark, disks, entries, directory's size and offset, comment
_END_64 = struct.Struct("<4sQ2H2L4Q")  # the same with wide numbers, before it
_LOCATOR_64 = struct.Struct("<4sLQL")  # between the two: mark, disk, offset of the one with wide numbers, disks
_AFTER_MEMBER = (0, 16, 24)  # bytes: none, or a member's sum and sizes once more
_DOS_ATTRIBUTES = 0xFF  # of a member marked as a folder torch reads no byte: its tensor is what was in memory before
_LOCAL = struct.Struct("<4s5H3L2H")  # what stands before a member; the last two: length of its name, and of the rest


class Unreadable(ValueError):
    """Not a file that trilab wrote. The message is one line that begins with a verb: "is damaged"."""


class _Called(Enum):
    """All that a checkpoint's pickle may call."""

    ORDERED_DICT = "collections OrderedDict"
    TENSOR = "torch._utils _rebuild_tensor_v2"


@dataclass(frozen=True)
class _StorageKind:
    item_bytes: int


@dataclass(frozen=True)
class _Storage:
    numbers: int


class _Tensor:
    """In the place of a tensor."""


class _OrderedDict(dict[Any, Any]):
    """In the place of an ordered dict."""


def look_through(path: Path) -> None:
    """Refuse what torch.save did not write, or what would be more in memory than it is on the disk.

    Memory: some hundred bytes for each byte of the pickle at most, which is small beside the weights, and for these
    none: they are read through, a piece at a time, for their sums.

    Raises:
        Unreadable: compressed, overlapping, oddly named or damaged members, bytes between them, two lists of them; a
            pickle that calls anything but a tensor's construction, holds a list in two places, or in a hundred others;
            a tensor that is more than its bytes.
        OSError, zipfile.BadZipFile, EOFError, ValueError, …: what the readers of broken files raise.
    """
    with path.open("rb") as file:
        _refuse_long_directory(file)
        with zipfile.ZipFile(file) as archive:
            _refuse_odd_members(archive, file)
            if damaged := archive.testzip():  # torch itself does not look at the sums that it has stored
                raise Unreadable(f"is damaged: {damaged!r:.100} is not what was written")
            root = archive.namelist()[0].partition("/")[0]
            sizes = {info.filename.removeprefix(f"{root}/"): info.file_size for info in archive.infolist()}
            if sizes.get("data.pkl", MOST_PICKLED + 1) > MOST_PICKLED:
                raise Unreadable(
                    f"has no data.pkl, where torch keeps names, or one of more than {MOST_PICKLED:,} bytes"
                )
            pickled = archive.read(f"{root}/data.pkl")
    _refuse_all_but_tensors(pickled, sizes)


def _refuse_long_directory(file: IO[bytes]) -> None:
    """Before zipfile makes an object of each entry; and where two readers could find two different lists."""
    size = file.seek(0, os.SEEK_END)
    wide = _END_64.size + _LOCATOR_64.size + _END.size
    file.seek(max(0, size - wide))
    end = file.read(wide)
    if len(end) < _END.size or not end[-_END.size :].startswith(b"PK\5\6"):
        raise Unreadable("does not end as a file of torch.save does: it was cut off, or is of another kind")
    *_, length, begins, comment = _END.unpack(end[-_END.size :])
    ends = size - _END.size
    if end[-_END.size - _LOCATOR_64.size :].startswith(b"PK\6\7"):
        ends = size - wide
        _, _, at, _ = _LOCATOR_64.unpack(end[_END_64.size : -_END.size])
        if at != ends or not end.startswith(b"PK\6\6"):
            raise Unreadable("has two lists of members")
        *_, length, begins = _END_64.unpack(end[: _END_64.size])
    if length > MOST_DIRECTORY:
        raise Unreadable(f"lists members in {length:,} bytes; more than {MOST_DIRECTORY:,} are not read")
    if begins + length != ends or comment:
        raise Unreadable("has a list of members that is not where torch.save writes it")


def _refuse_odd_members(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    members = sorted(archive.infolist(), key=lambda info: info.header_offset)
    names = [info.filename for info in members]
    if not members or len(set(names)) < len(names):
        raise Unreadable("has no members, or two of one name")
    root = archive.namelist()[0].partition("/")[0]
    free = 0  # where the next member may begin
    for info in members:
        if not info.filename.startswith(f"{root}/") or not _MEMBER.fullmatch(info.filename.removeprefix(f"{root}/")):
            raise Unreadable(f"has a member that torch.save does not write, {info.filename!r:.100}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise Unreadable(f"has a compressed member, {info.filename!r:.100}, and trilab compresses none")
        marked = info.external_attr & _DOS_ATTRIBUTES
        if marked or info.comment or (info.extra and archive.start_dir < zipfile.ZIP64_LIMIT):
            raise Unreadable(f"says more of a member than torch.save does, {info.filename!r:.100}")
        if info.header_offset < free:
            raise Unreadable(f"has members that overlap: {info.filename!r:.100}")
        if info.header_offset - free not in (_AFTER_MEMBER if free else (0,)):
            raise Unreadable(f"has bytes that belong to no member, before {info.filename!r:.100}")
        file.seek(info.header_offset)
        *_, name, rest = _LOCAL.unpack(file.read(_LOCAL.size))
        free = info.header_offset + _LOCAL.size + name + rest + info.file_size
    if free > archive.start_dir:
        raise Unreadable("has members that overlap their list")
    if archive.start_dir - free not in _AFTER_MEMBER:
        raise Unreadable("has bytes that belong to no member, before their list")


def _refuse_all_but_tensors(pickled: bytes, sizes: Mapping[str, int]) -> None:
    """Go through a pickle as its reader would, with stand-ins for tensors.

    Args:
        pickled: data.pkl.
        sizes: bytes of each member.
    """
    stack: list[Any] = []
    marks: list[list[Any]] = []
    memo: dict[Any, Any] = {}
    repeated = 0
    for step, (operation, argument, _) in enumerate(pickletools.genops(pickled)):
        if step >= MOST_STEPS:
            raise Unreadable(f"takes more than {MOST_STEPS:,} operations to read")
        match operation.name:
            case "PROTO":
                pass
            case "STOP":
                _refuse_deep(stack[-1])
            case (
                "NONE" | "NEWTRUE" | "NEWFALSE" | "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE"
            ):
                stack.append(argument)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(operation.name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "MARK":
                marks.append(stack)
                stack = []
            case "TUPLE":
                items, stack = stack, marks.pop()
                stack.append(tuple(items))
            case "APPENDS":
                items, stack = stack, marks.pop()
                _extend(stack[-1], items)
            case "APPEND":
                item = stack.pop()
                _extend(stack[-1], [item])
            case "SETITEMS":
                items, stack = stack, marks.pop()
                _update(stack[-1], items)
            case "SETITEM":
                items = stack[-2:]
                del stack[-2:]
                _update(stack[-1], items)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
                repeated += _length_again(memo[argument])
                if repeated > MOST_REPEATED:
                    raise Unreadable(f"means more than {MOST_REPEATED:,} characters again")
            case "GLOBAL":
                stack.append(_named(str(argument)))
            case "BINPERSID":
                stack.append(_stored(stack.pop(), sizes))
            case "REDUCE":
                arguments, called = stack.pop(), stack.pop()
                stack.append(_made(called, arguments))
            case "BUILD":
                state = stack.pop()
                if not (type(stack[-1]) is _OrderedDict and type(state) is dict and state.keys() <= {"_metadata"}):
                    raise Unreadable("holds code: it sets what is inside an object")
                _refuse_deep(state)
            case other:
                raise Unreadable(f"is pickled with {other}, which trilab does not use")


def _extend(target: Any, items: list[Any]) -> None:
    if not isinstance(target, list):
        raise Unreadable("holds code: it fills something else than a list")
    target.extend(items)


def _update(target: Any, items: list[Any]) -> None:
    if not isinstance(target, dict):
        raise Unreadable("holds code: it fills something else than a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not (key is None or isinstance(key, str | int | float)) or (isinstance(key, str) and len(key) > MOST_KEY):
            raise Unreadable(f"has a key that is no name and no number, or of more than {MOST_KEY:,} characters")
        target[key] = value


def _length_again(thing: Any) -> int:
    """Characters, about, of what stands once in the pickle and is meant again.

    Lists and dicts are not: two in two, sixty times, would take for ever to go through.
    """
    match thing:
        case str():
            return len(thing)
        case _Called() | _StorageKind() | _Tensor():
            return 1
        case tuple() if not any(isinstance(item, tuple | list | dict) for item in thing):
            return 1 + sum(_length_again(item) if isinstance(item, str) else 1 for item in thing)
    raise Unreadable("holds one thing in two places")


def _refuse_deep(whole: Any) -> None:
    level = [whole]
    for _ in range(MOST_LEVELS):
        inside: list[Any] = []
        for thing in level:
            if isinstance(thing, dict):
                inside += thing.values()
            elif isinstance(thing, list | tuple):
                inside += thing
        level = inside
        if not level:
            return
    raise Unreadable(f"holds lists in lists, more than {MOST_LEVELS} deep")


def _named(name: str) -> _Called | _StorageKind:
    """What a pickle names, by "module name"; nothing is imported."""
    module, _, kind = name.partition(" ")
    if module == "torch" and kind in ITEM_BYTES:
        return _StorageKind(ITEM_BYTES[kind])
    if name in [called.value for called in _Called]:
        return _Called(name)
    raise Unreadable(f"holds code, which is never run: {name.replace(' ', '.')!r:.100}")


def _stored(description: Any, sizes: Mapping[str, int]) -> _Storage:
    """The bytes of tensors: ("storage", kind, name of the member, device, numbers)."""
    match description:
        case ("storage", _StorageKind(item_bytes), str(member), str(), int(numbers)):
            if sizes.get(f"data/{member}") == numbers * item_bytes:
                return _Storage(numbers)
    raise Unreadable("holds a tensor that is more or less than its bytes")


def _made(called: Any, arguments: Any) -> _Tensor | _OrderedDict:
    match called, arguments:
        case _Called.ORDERED_DICT, ():
            return _OrderedDict()
        case _Called.TENSOR, (_Storage(numbers), int(first), tuple(shape), tuple(strides), _, _OrderedDict()):
            if len(shape) == len(strides) and all(type(n) is int and n >= 0 for n in (first, *shape, *strides)):
                size = math.prod(shape)
                last = first + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
                if not size or (size <= numbers and last < numbers):
                    return _Tensor()
            raise Unreadable("holds a tensor that is more or less than its bytes")
    raise Unreadable("holds code: it calls something otherwise than to make a tensor")
