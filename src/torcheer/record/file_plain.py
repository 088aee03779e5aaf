"""Plain data as JSON values: what stands in ``Op.args``, ``Module.attributes`` and the like.

None, booleans, strings, integers below 2**63 and finite floats are themselves, a list is a JSON array. All
else is an object of one key, which says what it is:

    {"r": 5}                  Ref(5)             {"t": [1, 2]}           (1, 2)
    {"d": [["k", 1]]}         {"k": 1}           {"s": [0, null, 2]}     slice(0, None, 2)
    {"f": "nan"}              float("nan")       {"c": [0.0, 1.5]}       complex(0.0, 1.5)
    {"e": null}               Ellipsis           {"i": "-0x1f"}          an integer of 2**63 or more
    {"o": "torch.Generator"}  Opaque("torch.Generator")

Nothing is looked up by name and nothing is called: reading cannot run code.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isnan
from typing import Any

from torcheer.record.model import Opaque, Ref

MAX_DEPTH = 100  # of nested containers: a list that contains itself ends here too
MAX_INT = 2**63 - 1
MAX_UNSIGNED = 2**64 - 1  # random seeds go that far
MAX_INT_BITS = 4096  # of any integer: Python refuses to print one of more than 4300 digits
FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class MalformedError(ValueError):
    """What is written, or was read, is no record. The caller knows the file and says so."""


def encode_plain(value: Any, depth: int = 0) -> Any:
    """Return the JSON value that stands for plain data; subclasses become the type they are based on."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Ref):
        return {"r": int(value)}
    if isinstance(value, int):
        return int(value) if -MAX_INT <= value <= MAX_INT else _encode_big(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else {"f": _float_name(value)}
    if isinstance(value, Opaque):
        return {"o": value.type_name}
    if isinstance(value, complex):
        return {"c": [encode_plain(value.real), encode_plain(value.imag)]}
    if value is Ellipsis:
        return {"e": None}
    if depth >= MAX_DEPTH:
        raise MalformedError(f"containers are nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [encode_plain(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"t": [encode_plain(item, depth + 1) for item in value]}
    if isinstance(value, slice):
        return {"s": [encode_plain(item, depth + 1) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, dict):
        return {"d": [[_encode_key(key), encode_plain(item, depth + 1)] for key, item in value.items()]}
    raise MalformedError(f"a value of type {type(value).__name__!r} is not plain data")


def _encode_big(value: int) -> dict[str, str]:
    if value.bit_length() > MAX_INT_BITS:
        raise MalformedError(f"an integer has more than {MAX_INT_BITS} bits")
    return {"i": hex(value)}


def _float_name(value: float) -> str:
    return "nan" if isnan(value) else "inf" if value > 0 else "-inf"


def _encode_key(key: Any) -> Any:
    if isinstance(key, (str, int)) and not isinstance(key, Ref):
        return encode_plain(key)
    raise MalformedError(f"a dict has a key of type {type(key).__name__!r}; keys are strings or integers")


def decode_plain(data: Any, depth: int = 0) -> Any:
    """The inverse of ``encode_plain``."""
    if data is None or isinstance(data, (bool, str, float)):
        return data
    if isinstance(data, int):
        return checked_int(data)
    if depth > MAX_DEPTH:
        raise MalformedError(f"containers are nested more than {MAX_DEPTH} deep")
    if isinstance(data, list):
        return [decode_plain(item, depth + 1) for item in data]
    if isinstance(data, dict) and len(data) == 1:
        ((tag, inner),) = data.items()
        decode = _DECODERS.get(tag)
        if decode is not None:
            return decode(inner, depth + 1)
    raise MalformedError(f"{shortened(data)} stands for no plain data")


def checked_int(data: Any) -> int:
    """``data`` if it is an integer of at most 64 bits."""
    if type(data) is not int or not -MAX_INT <= data <= MAX_UNSIGNED:
        raise MalformedError(f"{shortened(data)} is not an integer of at most 64 bits")
    return data


def checked(data: Any, kind: type, length: int | None = None) -> Any:
    """``data`` if it is of that JSON type (and length)."""
    if not isinstance(data, kind) or (length is not None and len(data) != length):  # type: ignore[arg-type]
        wanted = kind.__name__ if length is None else f"{kind.__name__} of {length}"
        raise MalformedError(f"{shortened(data)} is not a {wanted}")
    return data


def shortened(data: Any) -> str:
    """The repr of data from a file, cut: it may be of any size."""
    if isinstance(data, (list, dict)):
        return f"a {type(data).__name__} of {len(data)}"
    if isinstance(data, int) and abs(data) > MAX_INT:
        return "a very large integer"
    text = repr(data[:40] if isinstance(data, str) else data)
    return text if not isinstance(data, str) or len(data) <= 40 else f"{text}…"


def _decode_ref(data: Any, _depth: int) -> Ref:
    return Ref(checked_int(data))


def _decode_dict(data: Any, depth: int) -> dict[Any, Any]:
    result = {}
    for pair in checked(data, list):
        key, item = checked(pair, list, 2)
        key = decode_plain(key)
        if not isinstance(key, (str, int)) or isinstance(key, Ref):
            raise MalformedError(f"{shortened(key)} is not a key: keys are strings or integers")
        result[key] = decode_plain(item, depth)
    return result


def _decode_complex(data: Any, _depth: int) -> complex:
    real, imag = (decode_plain(part) for part in checked(data, list, 2))
    if type(real) is not float or type(imag) is not float:
        raise MalformedError("a complex number is not made of two floats")
    return complex(real, imag)


def _decode_big(data: Any, _depth: int) -> int:
    if len(checked(data, str)) > MAX_INT_BITS // 4 + 3:
        raise MalformedError(f"an integer has more than {MAX_INT_BITS} bits")
    try:
        return int(data, 16)
    except ValueError:
        raise MalformedError(f"{shortened(data)} is not a hexadecimal integer") from None


def _decode_float(data: Any, _depth: int) -> float:
    if not isinstance(data, str) or data not in FLOATS:
        raise MalformedError(f"{shortened(data)} is not one of {', '.join(FLOATS)}")
    return FLOATS[data]


def _decode_ellipsis(data: Any, _depth: int) -> Any:
    if data is not None:
        raise MalformedError(f"an ellipsis holds {shortened(data)}")
    return Ellipsis


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "r": _decode_ref,
    "t": lambda data, depth: tuple(decode_plain(item, depth) for item in checked(data, list)),
    "d": _decode_dict,
    "s": lambda data, depth: slice(*(decode_plain(item, depth) for item in checked(data, list, 3))),
    "f": _decode_float,
    "c": _decode_complex,
    "e": _decode_ellipsis,
    "i": _decode_big,
    "o": lambda data, _depth: Opaque(checked(data, str)),
}
