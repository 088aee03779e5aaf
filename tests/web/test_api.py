"""What the server answers to scripts: the views' data and pages of it, one shape of errors, a description of it all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import torcheer as tl
from tests.unit.store.make_run import rows_of, series_of
from tests.web.subjects import Explorer
from torcheer.store import Writer
from torcheer.views import history as history_view
from torcheer.web.app import Activity, application
from torcheer.web.shelf import Shelf


def ask(explorer: Explorer, path: str, **headers: str) -> tuple[int, Any]:
    request = Request(f"{explorer.address}{path}", headers=headers)
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        return refused.code, json.load(refused)


def test_the_listing_names_everything_shown(explorer: Explorer) -> None:
    status, found = ask(explorer, "api")
    assert status == 200
    assert found["torcheer"] == tl.__version__
    kinds = [(one["kind"], one["title"]) for one in found["subjects"]]
    assert ("history", "Lab") in kinds
    assert ("watch", "first") in kinds
    assert [one["last_step"] for one in found["subjects"] if one["title"] == "first"] == [199]


def test_data_is_what_the_view_builds(explorer: Explorer, history: tl.ModelHistory) -> None:
    _, data = ask(explorer, f"api/subjects/{explorer.subject('history')}")
    built = json.loads(json.dumps(history_view.build(history)))
    built["run"].pop("measured", None)
    data["run"].pop("measured", None)
    assert data["ops"] == built["ops"]
    assert data["modules"] == built["modules"]


def test_lists_are_paged(explorer: Explorer) -> None:
    subject = explorer.subject("history")
    _, whole = ask(explorer, f"api/subjects/{subject}?at=ops.label&count=1000")
    _, second = ask(explorer, f"api/subjects/{subject}?at=ops.label&from=10&count=5")
    assert second == {"at": "ops.label", "total": whole["total"], "from": 10, "items": whole["items"][10:15]}


def test_figures_are_statistics_gradients_and_flops(explorer: Explorer) -> None:
    _, found = ask(explorer, f"api/subjects/{explorer.subject('history')}/figures")
    ops = explorer.data["ops"]
    log = ops["label"].index("log_1_74")
    row = found["statistics"]["value"].index(ops["outputs"][log][0])
    assert found["statistics"]["num_nan"][row] == found["statistics"]["num_elements"][row]
    conv = ops["label"].index("conv2d_1_1")
    # 2 images, 8 channels, 6×6 places, each a sum of 27 products; and the bias.
    assert found["flops"]["flops"][found["flops"]["op"].index(conv)] in (2 * 8 * 36 * 27 * 2, 2 * 8 * 36 * (27 * 2 + 1))
    head = ops["outputs"][ops["label"].index("linear_14_72")][0]
    assert found["gradient_norms"]["norm"][found["gradient_norms"]["value"].index(head)] > 0
    assert found["reason"] is None


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("api/subjects/99", 404, "There is no subject 99"),
        ("api/subjects/0?at=ops.lable", 404, "no 'lable' among num, kind, label"),
        ("api/subjects/0?at=ops.label&count=many", 400, "count='many' is not a whole number"),
        ("api/subjects/0/details?value=999999", 404, "There is no tensor 999999"),
        ("api/subjects/0/details", 400, "value= is missing"),
        ("api/subjects/0/series?series=1", 404, "is no watched run"),
        ("api/nothing", 404, "There is nothing at /api/nothing"),
    ],
)
def test_every_error_has_one_shape(explorer: Explorer, path: str, status: int, message: str) -> None:
    found, answer = ask(explorer, path)
    assert found == status
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"status", "message", "hint"}
    assert answer["error"]["status"] == status
    assert message in answer["error"]["message"]
    assert answer["error"]["hint"]


def test_the_description_has_every_route_and_only_those(explorer: Explorer) -> None:
    _, described = ask(explorer, "api/openapi.json")
    routes = {re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path) for route in application(Shelf([]), Activity()).routes}  # type: ignore[attr-defined]
    api = {route for route in routes if route.startswith("/api") and route != "/api/openapi.json"}
    assert set(described["paths"]) == api
    for path, found in described["paths"].items():
        named = {one["name"] for one in found["get"]["parameters"] if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path)), path
        assert found["get"]["responses"]["default"]["content"]["application/json"]["schema"]


def test_a_run_is_read_on_by_cursor(explorer: Explorer) -> None:
    run = f"api/subjects/{explorer.subject_of('first')}"
    _, first = ask(explorer, f"{run}/changes")
    assert first["last_step"] == 199
    assert set(first["steps"]) == {"train", "eval"}
    _, again = ask(explorer, f"{run}/changes?cursor={first['cursor']}")
    assert again["steps"] == {}
    assert again["series"] is False
    _, rows = ask(explorer, f"{run}/series?series=1&since=190")
    assert min(rows["rows"][0]["last_steps"]) >= 190


def test_every_process_of_a_run_is_shown(tmp_path: Path) -> None:
    """Under torchrun process 0 starts the server; the others write beside it, and begin when they begin."""
    shelf = Shelf([tmp_path])
    writers = []
    for rank in range(2):
        writer = Writer(tmp_path / "run", rank)
        writers.append(writer)
        series = series_of(writer)
        for step in range(3 + rank):
            writer.add_step(rows_of(series, step))
        writer.flush()
        assert len(shelf.look()) == rank + 1
    found = [shelf.run(number) for number in shelf.look()]
    assert [one.title for one in found] == ["run · rank 0", "run · rank 1"]
    assert [one.last_step() for one in found] == [2, 3]
    assert [one.data({})["ranks"] for one in found] == [[0, 1], [0, 1]]
    for writer in writers:
        writer.close()
    for one in found:
        one.run.close()


def test_of_a_long_curve_what_it_is_drawn_from(explorer: Explorer) -> None:
    run = f"api/subjects/{explorer.subject_of('first')}"
    _, whole = ask(explorer, f"{run}/scalars?name=loss")
    _, thin = ask(explorer, f"{run}/scalars?name=loss&columns=10")
    assert len(whole["loss"]["steps"]) == 200
    assert 10 <= len(thin["loss"]["steps"]) <= 32
    assert (thin["loss"]["steps"][0], thin["loss"]["steps"][-1]) == (0, 199)
    assert min(thin["loss"]["values"]) == min(whole["loss"]["values"])
    assert max(thin["loss"]["values"]) == max(whole["loss"]["values"])
    of = dict(zip(whole["loss"]["steps"], whole["loss"]["values"], strict=True))
    assert all(of[step] == value for step, value in zip(thin["loss"]["steps"], thin["loss"]["values"], strict=True))


def test_statistics_at_a_step_of_one_kind(explorer: Explorer) -> None:
    run = f"api/subjects/{explorer.subject_of('first')}"
    _, overview = ask(explorer, run)
    _, found = ask(explorer, f"{run}/at?step=60&kind=output&stats=norm")
    kinds = {one["id"]: one["kind"] for one in overview["series"]}
    assert {kinds[one] for one in found["series"]} == {"output"}
    assert list(found["stats"]) == ["norm"]
    assert len(found["stats"]["norm"]) == len(found["series"]) == 4
    status, answer = ask(explorer, f"{run}/at?stats=nrom")
    assert status == 400
    assert "There is no statistic 'nrom'" in answer["error"]["message"]
