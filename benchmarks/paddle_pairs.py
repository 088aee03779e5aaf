"""Paddle beside PyTorch: layers and networks that are equal, planted mistakes, and what autodiff says of each.

    python benchmarks/paddle_pairs.py [--only layers,networks,mistakes] [--no-rival] [--json PATH]

With padiff 0.2.0 beside it where it is installed (``pip install padiff pyyaml``), in a process of its own, since it
replaces functions of both frameworks when it is imported. The pairs and the mistakes are those of ``tests/paddle``.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
warnings.filterwarnings("ignore")

LAYER_ATOL = 1e-5
NETWORK_ATOL = 1e-4
PARTS = ("layers", "networks", "mistakes")


class Case(NamedTuple):
    """One comparison of two models."""

    part: str
    name: str
    expected: str = ""  # address of the layer that must be named; "" in a pair that is equal


def cases(parts: tuple[str, ...]) -> list[Case]:
    from tests.paddle.bugs import BUGS
    from tests.paddle.layer_pairs import LAYER_PAIRS
    from tests.paddle.model_pairs import MODEL_PAIRS

    found = [Case("layers", pair.name) for pair in LAYER_PAIRS]
    found += [Case("networks", name) for name in MODEL_PAIRS]
    found += [Case("mistakes", bug.name, bug.layer) for bug in BUGS]
    return [case for case in found if case.part in parts]


def models_of(case: Case) -> tuple[Any, Any, tuple[Any, ...], bool]:
    """Both models, their inputs, and whether their weights are to be set."""
    import torch

    from tests.paddle import bugs
    from tests.paddle.layer_pairs import LAYER_PAIRS, make
    from tests.paddle.model_pairs import MODEL_PAIRS

    torch.manual_seed(0)
    if case.part == "layers":
        pair = next(pair for pair in LAYER_PAIRS if pair.name == case.name)
        return *make(pair), pair.inputs(), True
    bug = next((bug for bug in bugs.BUGS if bug.name == case.name), None)
    network = MODEL_PAIRS[bug.model if bug else case.name]
    layer, module = network.make(bug.name if bug else "")
    if bug:
        bugs.plant_weights(bug, layer, module)
    inputs = network.inputs()
    return layer, module, inputs if isinstance(inputs, tuple) else (inputs,), bug is None or bug.weights == "auto"


# -- torcheer ----------------------------------------------------------------------------------------------------


def by_torcheer(case: Case) -> dict[str, Any]:
    """What torcheer says, in both orders of the arguments."""
    import torcheer as tl
    from tests.paddle import bugs

    said: dict[str, Any] = {"max": 0.0, "verdicts": [], "named": []}
    for torch_first in (False, True):
        layer, module, inputs, auto_weights = models_of(case)
        models = (module, layer) if torch_first else (layer, module)
        options = {"atol": LAYER_ATOL if case.part == "layers" else NETWORK_ATOL}
        report = tl.autodiff(*models, inputs, auto_weights=auto_weights, options=options, show=False)
        bug = next((bug for bug in bugs.BUGS if bug.name == case.name), None)
        said["verdicts"].append(bool(report))
        said["named"].append(bug is not None and bugs.names_the_layer(report, bug))
        said["max"] = max(said["max"], report.max_output_diff)
        said["blamed"] = None if report else report.blamed[0]
    return said


# -- padiff ------------------------------------------------------------------------------------------------------


def rival_answers(wanted: list[Case]) -> dict[str, dict[str, Any]]:
    """What padiff says. A case that ends its process is noted, and the next ones get a new process."""
    said: dict[str, dict[str, Any]] = {}
    rest = list(wanted)
    while rest:
        command = [sys.executable, str(Path(__file__).resolve()), "--rival", json.dumps(rest)]
        # Without this switch padiff moves layers in a way that fails in Paddle 3 for recurrent ones.
        environment = {**os.environ, "PADIFF_CUDA_MEMORY": "OFF"}
        with TemporaryDirectory() as folder:  # for its log
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
        for line in ran.stdout.splitlines():
            if line.startswith("{"):
                answer = json.loads(line)
                said[answer["case"]] = answer
        rest = [case for case in rest if key(case) not in said]
        if rest:  # the process ended in the first of these
            said[key(rest[0])] = {"case": key(rest[0]), "error": "ends the process"}
            rest = rest[1:]
    return said


def answer_as_rival(wanted: list[Case]) -> None:
    """In a process of its own: run padiff on each case and print what it says as a line of JSON."""
    real = sys.stdout
    sys.path.insert(0, os.getcwd())  # padiff writes its log into the first folder of the path
    with contextlib.redirect_stdout(io.StringIO()):
        import paddle
        import padiff
        import torch

    for case in wanted:
        layer, module, inputs, auto_weights = models_of(case)
        if case.part == "layers":
            layer, module = _Named(paddle.nn.Layer, layer).model, _Named(torch.nn.Module, module).model
        names = list(inspect.signature(layer.forward).parameters)[: len(inputs)]
        given = (
            {name: paddle.to_tensor(array) for name, array in zip(names, inputs, strict=True)},
            {name: torch.from_numpy(array) for name, array in zip(names, inputs, strict=True)},
        )
        options = {"atol": LAYER_ATOL if case.part == "layers" else NETWORK_ATOL, "compare_mode": "strict"}
        answer: dict[str, Any] = {}
        for with_map in (False, True):  # what it cannot pair by itself it may with its own map
            printed = io.StringIO()
            answer = {"case": key(case), "with_map": with_map}
            try:
                with contextlib.redirect_stdout(printed):
                    layer_map = padiff.LayerMap() if with_map else None
                    if layer_map is not None:
                        layer_map.auto(layer, module)
                    answer["verdict"] = bool(padiff.auto_diff(layer, module, given, auto_weights, options, layer_map))
            except Exception as error:  # noqa: BLE001 - whatever a rival raises is its answer
                answer["error"] = type(error).__name__
            if "Assign weight Failed" in printed.getvalue():
                answer["error"] = "weights not assigned"
            answer["named"] = case.expected != "" and rival_names(printed.getvalue(), layer, case.expected)
            if "error" not in answer:
                break
        print(json.dumps(answer), file=real, flush=True)


class _Named:
    """padiff passes inputs by name; these give them in order."""

    def __init__(self, kind: type, inner: Any) -> None:
        class Named(kind):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, first: Any, second: Any = None, third: Any = None) -> Any:
                return self.inner(*(one for one in (first, second, third) if one is not None))

        self.model = Named()


def rival_names(printed: str, layer: Any, expected: str) -> bool:
    """Does padiff's report name the layer: by its class, or by the innermost line of the model that it shows?"""
    types = re.findall(r"Type of layer is  : (\S+) vs (\S+)", printed)
    if not types:
        return False
    bugged = layer
    for part in expected.split("."):
        bugged = bugged[int(part)] if part.isdigit() else getattr(bugged, part)
    by_class = type(bugged).__name__ in types[-1][1].replace("'>", "").split(".")
    shown = re.search(r"model_pairs\.py: \d+ +\w+\n +(.*)", printed)
    by_line = shown is not None and f"self.{expected.rsplit('.', maxsplit=1)[-1]}(" in shown[1]
    return by_class or by_line


def key(case: Case) -> str:
    return f"{case.part}: {case.name}"


# -- the table ---------------------------------------------------------------------------------------------------


def lines_of(case: Case, ours: dict[str, Any], rival: dict[str, Any] | None) -> Iterator[str]:
    verdict = "both equal" if all(ours["verdicts"]) else f"differs: {ours['blamed'] or 'the model itself'}"
    right = all(ours["named"]) if case.expected else all(ours["verdicts"])
    theirs = "" if rival is None else rival_text(case, rival)
    yield f"{case.name:44} {ours['max']:9.1e}  {'ok ' if right else 'NO '} {verdict:34} {theirs}"


def rival_text(case: Case, rival: dict[str, Any]) -> str:
    if "error" in rival:
        return f"-- {rival['error']}"
    said = ("equal" if rival["verdict"] else "differs") + (" (LayerMap.auto)" if rival["with_map"] else "")
    right = rival["verdict"] if not case.expected else (not rival["verdict"] and rival["named"])
    return (
        f"{'ok' if right else 'NO'} {said}{'' if not case.expected else ', named' if rival['named'] else ', not named'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rival", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rival:
        answer_as_rival([Case(*case) for case in json.loads(chosen.rival)])
        return 0
    wanted = cases(tuple(chosen.only.split(",")))
    rivals: dict[str, dict[str, Any]] = {}
    if not chosen.no_rival and has_padiff():
        rivals = rival_answers(wanted)
    elif not chosen.no_rival:
        print("padiff is not installed: pip install padiff pyyaml")
    results = {}
    for part in PARTS:
        of_part = [case for case in wanted if case.part == part]
        if not of_part:
            continue
        print(f"\n{part:44} {'max diff':>9}  torcheer, both orders {'':16} {'padiff 0.2.0' if rivals else ''}")
        for case in of_part:
            ours = results[key(case)] = by_torcheer(case)
            print(*lines_of(case, ours, rivals.get(key(case))), sep="\n")
    summary(wanted, results, rivals)
    if chosen.json:
        chosen.json.write_text(json.dumps({"torcheer": results, "padiff": rivals}, indent=1))
    return 0


def has_padiff() -> bool:
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('padiff') and u.find_spec('yaml')))"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def summary(wanted: list[Case], ours: dict[str, Any], rivals: dict[str, Any]) -> None:
    print()
    for part in PARTS:
        of_part = [case for case in wanted if case.part == part]
        if not of_part:
            continue
        if part == "mistakes":
            right = sum(all(ours[key(case)]["named"]) for case in of_part)
            theirs = sum(
                not rivals.get(key(case), {}).get("verdict", True) and rivals[key(case)]["named"] for case in of_part
            )
        else:
            right = sum(all(ours[key(case)]["verdicts"]) for case in of_part)
            theirs = sum(rivals.get(key(case), {}).get("verdict", False) for case in of_part)
        what = "named at the right layer" if part == "mistakes" else "equal, as they are"
        print(f"{part}: {right} of {len(of_part)} {what}{f'; padiff {theirs}' if rivals else ''}")


if __name__ == "__main__":
    sys.exit(main())
