"""JSON answers: one way to write data, one shape for errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from torcheer.views.page import encoded

HINTS = {
    400: "See /api/openapi.json for what can be asked.",
    404: "GET /api lists what is shown here.",
    405: "The explorer only shows: use GET.",
}


class RequestError(Exception):
    """A request that cannot be answered, in the reader's terms."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def answer(data: Any, status: int = 200) -> Response:
    """Return data as a JSON response."""
    return Response(encoded(data), status, media_type="application/json")


def refusal(status: int, message: str) -> Response:
    """Return the one shape every error has."""
    hint = HINTS.get(status, "")
    return answer({"error": {"status": status, "message": message, "hint": hint}}, status)


def number(
    options: Mapping[str, str], name: str, default: int | None = None, least: int = 0, most: int | None = None
) -> int:
    """Return a query parameter that is a whole number within its bounds."""
    text = options.get(name)
    if text is None:
        if default is None:
            raise RequestError(400, f"{name}= is missing: it takes a whole number.")
        return default
    try:
        value = int(text)
    except ValueError:
        raise RequestError(400, f"{name}={text!r} is not a whole number.") from None
    if value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise RequestError(400, f"{name}={value}: it takes a number {bounds}.")
    return value


def paged(data: Any, at: str, start: int, count: int) -> dict[str, Any]:
    """Return a part of the list that stands at a dotted place in some data: ``nodes``, ``levels.aten.nodes``."""
    here = data
    for step in at.split("."):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and step.isdigit() and int(step) < len(here):
            here = here[int(step)]
        else:
            known = ", ".join(map(str, here)) if isinstance(here, dict) else f"0 to {len(here) - 1}" if here else ""
            raise RequestError(404, f"There is nothing at {at!r}: no {step!r}" + (f" among {known}." if known else "."))
    if not isinstance(here, list):
        raise RequestError(400, f"{at!r} is not a list, so it has no pages; ask for the whole without at=.")
    return {"at": at, "total": len(here), "from": start, "items": here[start : start + count]}
