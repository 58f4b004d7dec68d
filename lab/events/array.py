"""An array inside an event: immutable bytes with a dtype and a shape."""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32")


@dataclass(frozen=True)
class ArrayData:
    """A small C-contiguous, little-endian array.

    On the wire: `{"dtype": ..., "shape": [...], "base64": ...}`. In a recording: a named tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"array dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if any(n < 0 for n in self.shape):
            raise ValueError(f"array shape {self.shape} has a negative size")
        expected = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if len(self.data) != expected:
            raise ValueError(
                f"array of shape {self.shape} and dtype {self.dtype} takes {expected} bytes, got {len(self.data)}"
            )

    @classmethod
    def of(cls, array: npt.ArrayLike, dtype: str) -> ArrayData:
        """Copy `array` as `dtype` (one of `DTYPES`)."""
        if dtype not in DTYPES:
            raise ValueError(f"array dtype {dtype!r} is not one of {', '.join(DTYPES)}")
        values = np.asarray(array, dtype=np.dtype(dtype).newbyteorder("<"), order="C")
        return cls(dtype=dtype, shape=values.shape, data=values.tobytes())

    def numpy(self) -> npt.NDArray[Any]:
        """A read-only view of the values."""
        return np.frombuffer(self.data, dtype=np.dtype(self.dtype).newbyteorder("<")).reshape(self.shape)

    def to_json(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "base64": base64.b64encode(self.data).decode("ascii"),
        }

    @classmethod
    def from_json(cls, value: Any) -> ArrayData:
        if isinstance(value, ArrayData):
            return value
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "base64"}:
            raise ValueError("an array is an object with dtype, shape and base64")
        dtype, shape, text = value["dtype"], value["shape"], value["base64"]
        if not isinstance(dtype, str) or not isinstance(text, str):
            raise ValueError("an array's dtype and base64 are texts")
        if not isinstance(shape, list | tuple) or any(type(n) is not int for n in shape):
            raise ValueError("an array's shape is a list of whole numbers")
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f"array data is not base64: {error}") from None
        return cls(dtype=dtype, shape=tuple(shape), data=data)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.from_json)
