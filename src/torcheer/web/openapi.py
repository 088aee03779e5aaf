"""What can be asked of the server, as OpenAPI: GET /api/openapi.json."""

from __future__ import annotations

from typing import Any

from torcheer import __version__


def _parameter(name: str, text: str, kind: str = "integer", place: str = "query") -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": text, "schema": {"type": kind}}


def _get(summary: str, *parameters: dict[str, Any], content: str = "application/json") -> dict[str, Any]:
    refused = {"description": "What is wrong and how to mend it", "content": {"application/json": {"schema": _ERROR}}}
    return {
        "get": {
            "summary": summary,
            "parameters": list(parameters),
            "responses": {"200": {"description": summary, "content": {content: {}}}, "default": refused},
        }
    }


_ERROR: dict[str, Any] = {"$ref": "#/components/schemas/Error"}
_SUBJECT = _parameter("id", "Number of the subject in GET /api", place="path")
_TEXT: dict[str, Any] = {"type": "string"}

DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "torcheer explorer",
        "version": __version__,
        "description": "Only GET. Numbers that JSON does not have are the texts nan, inf and -inf.",
    },
    "paths": {
        "/api": _get("What is shown here: id, kind, title and last step of each subject"),
        "/api/subjects/{id}": _get(
            "All that a view has built, or one page of a list in it",
            _SUBJECT,
            _parameter("at", "Dotted place of a list: ops.label, modules.address", "string"),
            _parameter("from", "First entry of the page, from 0"),
            _parameter("count", "Entries of the page, at most 100000; 1000 if not given"),
        ),
        "/api/subjects/{id}/details": _get(
            "More about one thing of a subject: for a recording, statistics and pictures of a tensor",
            _SUBJECT,
            _parameter("value", "Of a recording: index of the tensor in its values"),
        ),
        "/api/subjects/{id}/figures": _get(
            "Of a recording: statistics of the tensors kept, norms of gradients, FLOPs of operations", _SUBJECT
        ),
        "/api/subjects/{id}/series": _get(
            "Of a watched run: histograms and statistics of tensors over steps",
            _SUBJECT,
            _parameter("series", "Numbers of series, with commas", "string"),
            _parameter("since", "Only rows that reach this step or a later one"),
            _parameter("columns", "About how many rows at most"),
        ),
        "/api/subjects/{id}/changes": _get(
            "Of a watched run: what is new since a cursor",
            _SUBJECT,
            _parameter("cursor", "As the last answer had it; not given: everything is new", "string"),
            _parameter("alert", "Number of the last alert known: only later ones are told"),
            _parameter("note", "Number of the last note known: only later ones are told"),
        ),
        "/api/subjects/{id}/scalars": _get(
            "Of a watched run: numbers by name over steps",
            _SUBJECT,
            _parameter("name", "Only this one", "string"),
            _parameter("since", "Only what came after this step"),
            _parameter("columns", "Least, greatest and first NaN of so many stretches; not given: every number"),
        ),
        "/api/subjects/{id}/at": _get(
            "Of a watched run: statistics of all series at a step",
            _SUBJECT,
            _parameter("step", "The step; not given: the newest"),
            _parameter("lane", "Which lane: train if not given", "string"),
            _parameter("kind", "Only series of this kind: output, param_grad, …", "string"),
            _parameter("stats", "Names of statistics, with commas between them; not given: all", "string"),
        ),
        "/api/events": _get(
            "Server-sent events: a subject has grown, and up to which step", content="text/event-stream"
        ),
    },
    "components": {
        "schemas": {
            "Error": {
                "type": "object",
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["status", "message", "hint"],
                        "properties": {"status": {"type": "integer"}, "message": _TEXT, "hint": _TEXT},
                    }
                },
            }
        }
    },
}
