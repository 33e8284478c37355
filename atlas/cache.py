"""Answers of the database on disk, written as JSON and numbers: a file of the cache runs nothing when it is read."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from flask_caching.backends.filesystemcache import FileSystemCache

from backend.store import queries

_PLAIN = (str, bool, int, float, type(None))
RECORDS: dict[str, Any] = {one.__name__: one for one in (queries.SourceProfile,)}
"""Answers that are neither a table nor a plain value."""
_KINDS = "biufMm"  # kinds of numbers, dates and durations, which are written as their bytes


class Serializer:
    """Tables, arrays and plain values to bytes and back; anything else is not kept."""

    def dump(self, value: Any, f: BinaryIO) -> None:
        """Write a value, or nothing that would be read again."""
        f.write(self.dumps(value))

    def dumps(self, value: Any) -> bytes:
        """A value as bytes; those of None where it is of a type that no answer has."""
        try:
            return json.dumps(_packed(value), separators=(",", ":")).encode()
        except TypeError as error:
            logging.getLogger(__name__).warning("An answer is not kept (%s)", error)
            return b"null"

    def load(self, f: BinaryIO) -> Any:
        """Read a value; None where the file is none of ours."""
        return self.loads(f.read())

    def loads(self, bvalue: bytes) -> Any:
        """A value out of bytes; None where they are none of ours."""
        try:
            return _unpacked(json.loads(bvalue))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            logging.getLogger(__name__).warning("A kept answer cannot be read (%s)", error)
            return None


class TableCache(FileSystemCache):
    """A folder of answers for flask-caching."""

    serializer = Serializer()


def _packed(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return {
            "frame": [_packed(value[name]) for name in value.columns],
            "columns": _packed(list(value.columns)),
            "index": _packed_index(value.index),
        }
    if isinstance(value, pd.Series):  # a column, whose name and index the table holds
        if value.dtype.kind in _KINDS and isinstance(value.dtype, np.dtype):
            return _packed(value.to_numpy())
        return {"objects": [_packed(one) for one in value], "dtype": str(value.dtype)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            return {"array": [_packed(one) for one in value.ravel()], "shape": value.shape}
        raw = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"bytes": raw, "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, pd.Timestamp):
        return {"time": value.isoformat()}
    if isinstance(value, np.generic):
        return {"number": _packed(np.asarray(value))}
    if (name := type(value).__name__) in RECORDS:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"record": name, "fields": _packed(fields)}
    if isinstance(value, tuple):
        return {"tuple": [_packed(one) for one in value]}
    if isinstance(value, list):
        return [_packed(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[_packed(key), _packed(one)] for key, one in value.items()]}
    if value is pd.NA or value is pd.NaT:
        return {"missing": "NA" if value is pd.NA else "NaT"}
    if type(value) in _PLAIN:
        return value
    raise TypeError(f"{type(value).__name__} is not kept")


def _packed_index(index: pd.Index[Any]) -> Any:
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": index.name}
    if isinstance(index, pd.MultiIndex):
        raise TypeError("an index of several levels is not kept")
    return {"values": _packed(index.to_series()), "name": index.name}


def _unpacked(told: Any) -> Any:
    if isinstance(told, list):
        return [_unpacked(one) for one in told]
    if not isinstance(told, dict):
        return told
    if "frame" in told:
        index = told["index"]
        rows = pd.RangeIndex(*index["range"], name=index["name"]) if "range" in index else _index(index)
        columns = [_column(one, rows) for one in told["frame"]]
        frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=rows)
        frame.index = rows
        frame.columns = pd.Index(_unpacked(told["columns"]))
        return frame
    if "objects" in told:
        return _column(told, None)
    if "bytes" in told:
        flat = np.frombuffer(base64.b64decode(told["bytes"]), np.dtype(told["dtype"]))
        return flat.reshape(told["shape"]).copy()
    if "array" in told:
        array = np.empty(len(told["array"]), object)
        array[:] = [_unpacked(one) for one in told["array"]]
        return array.reshape(told["shape"])
    if "time" in told:
        return pd.Timestamp(told["time"])
    if "number" in told:
        return _unpacked(told["number"])[()]
    if "record" in told:
        return RECORDS[told["record"]](**_unpacked(told["fields"]))
    if "tuple" in told:
        return tuple(_unpacked(one) for one in told["tuple"])
    if "dict" in told:
        return {_unpacked(key): _unpacked(one) for key, one in told["dict"]}
    return {"NA": pd.NA, "NaT": pd.NaT}[told["missing"]]


def _column(told: Any, index: pd.Index[Any] | None) -> pd.Series[Any]:
    if "objects" not in told:
        return pd.Series(_unpacked(told), index=index)
    values = np.empty(len(told["objects"]), object)
    values[:] = [_unpacked(one) for one in told["objects"]]
    return pd.Series(values, index=index, dtype=object).astype(told["dtype"])


def _index(told: Any) -> pd.Index[Any]:
    return pd.Index(_column(told["values"], None), name=told["name"])
