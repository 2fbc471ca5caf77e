"""Vectors from an .npz file, without numpy, which is larger than all that the command line needs."""

from __future__ import annotations

import ast
import struct
import zipfile
from array import array
from pathlib import Path
from typing import Any, NamedTuple

_NUMBERS = {"f2": "e", "f4": "f", "f8": "d"}


class _Array(NamedTuple):
    kind: str
    """As numpy writes it: <f4, >f8, <U12."""
    shape: tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind}{self.shape}"


def read_vectors(path: Path) -> dict[str, array[float]]:
    """The arrays ``texts`` and ``vectors`` of an .npz file, as a mapping from text to vector. Raises ValueError."""
    try:
        with zipfile.ZipFile(path) as archive:
            texts, vectors = (_array(archive.read(f"{name}.npy")) for name in ("texts", "vectors"))
    except (KeyError, OSError, ValueError, EOFError, SyntaxError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no .npz file with the arrays texts and vectors: {error}") from error
    if (
        len(vectors.shape) != 2
        or texts.shape != vectors.shape[:1]
        or texts.kind[1] != "U"
        or vectors.kind[1:] not in _NUMBERS
    ):
        raise ValueError(
            f"{path}: texts must be n strings and vectors n rows of floating point numbers, not {texts} and {vectors}"
        )
    return dict(zip(_strings(texts), _rows(vectors), strict=True))


def _array(file: bytes) -> _Array:
    """An .npy file: magic, version, length of the head, the head as a Python literal, the data."""
    if file[:6] != b"\x93NUMPY" or len(file) < 12:
        raise ValueError("an array is no .npy file")
    start, size = (10, "<H") if file[6] == 1 else (12, "<I")
    begin = start + struct.unpack_from(size, file, 8)[0]
    head: dict[str, Any] = ast.literal_eval(file[start:begin].decode())
    kind, shape = str(head["descr"]), tuple(map(int, head["shape"]))
    if head["fortran_order"] and len(shape) > 1:
        raise ValueError("an array is stored by columns; numpy.ascontiguousarray stores it by rows")
    if kind[0] not in "<>" or not kind[2:].isdigit():
        raise ValueError(f"an array of type {kind}")
    items = 1
    for size_of in shape:
        items *= size_of
    length = items * int(kind[2:]) * (4 if kind[1] == "U" else 1)
    if len(file) - begin != length:
        raise ValueError(f"an array has {len(file) - begin} bytes instead of {length}")
    return _Array(kind, shape, file[begin:])


def _strings(stored: _Array) -> list[str]:
    width = int(stored.kind[2:]) * 4
    code = "utf-32-le" if stored.kind[0] == "<" else "utf-32-be"
    return [
        stored.data[place * width : (place + 1) * width].decode(code).rstrip("\0")
        for place in range(stored.shape[0])
    ]


def _rows(stored: _Array) -> list[array[float]]:
    """As small as in the file: a list of Python's floats takes eight times as much."""
    row = struct.Struct(f"{stored.kind[0]}{stored.shape[1]}{_NUMBERS[stored.kind[1:]]}")
    code = "d" if stored.kind[1:] == "f8" else "f"
    return [array(code, numbers) for numbers in row.iter_unpack(stored.data)] if row.size else []
