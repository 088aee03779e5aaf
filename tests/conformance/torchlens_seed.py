"""The code of the TorchLens seed, word for word, and a way to run it statement by statement.

Its texts in quotes are what the seed says is printed. Tabs and blanks at the end of a line are escapes here,
so that no editor changes them.
"""

from __future__ import annotations

import ast
import io
import sys
import types
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import pytest
import torch

import torcheer as tl
from examples.models import AlexNet

FIRST_BLOCK = """\
import torch
import torchvision
import torcheer as tl

alexnet = torchvision.models.alexnet()
x = torch.rand(1, 3, 224, 224)
model_history = tl.log_forward_pass(alexnet, x, layers_to_save='all', vis_opt='unrolled')
print(model_history)

'''
Log of AlexNet forward pass:
\tModel structure: purely feedforward, without branching; 23 total modules.
\t24 tensors (4.8 MB) computed in forward pass; 24 tensors (4.8 MB) saved.
\t16 parameter operations (61100840 params total; 248.7 MB).
\tRandom seed: 3210097511
\tTime elapsed: 0.288s
\tModule Hierarchy:
\t\tfeatures:
\t\t    features.0, features.1, features.2, features.3, features.4, features.5, features.6, features.7,\x20
\t\t    features.8, features.9, features.10, features.11, features.12
\t\tavgpool
\t\tclassifier:
\t\t    classifier.0, classifier.1, classifier.2, classifier.3, classifier.4, classifier.5, classifier.6
\tLayers:
\t\t0: input_1_0\x20
\t\t1: conv2d_1_1\x20
\t\t2: relu_1_2\x20
\t\t3: maxpool2d_1_3\x20
\t\t4: conv2d_2_4\x20
\t\t5: relu_2_5\x20
\t\t6: maxpool2d_2_6\x20
\t\t7: conv2d_3_7\x20
\t\t8: relu_3_8\x20
\t\t9: conv2d_4_9\x20
'''
"""

SECOND_BLOCK = """\
print(model_history['conv2d_3_7'])  # pulling out layer by its name\x20
# The following commented lines pull out the same layer:
# model_history['conv2d_3'] you can omit the second number (since strictly speaking it's redundant)
# model_history['conv2d_3_7:1'] colon indicates the pass of a layer (here just one)
# model_history['features.6'] can grab a layer by the module for which it is an output
# model_history[7] the 7th layer overall
# model_history[-17] the 17th-to-last layer
'''
Layer conv2d_3_7, operation 8/24:
\tOutput tensor: shape=(1, 384, 13, 13), dype=torch.float32, size=253.5 KB
\t\ttensor([[ 0.0503, -0.1089, -0.1210, -0.1034, -0.1254],
        [ 0.0789, -0.0752, -0.0581, -0.0372, -0.0181],
        [ 0.0949, -0.0780, -0.0401, -0.0209, -0.0095],
        [ 0.0929, -0.0353, -0.0220, -0.0324, -0.0295],
        [ 0.1100, -0.0337, -0.0330, -0.0479, -0.0235]])...
\tParams: Computed from params with shape (384,), (384, 192, 3, 3); 663936 params total (2.5 MB)
\tParent Layers: maxpool2d_2_6
\tChild Layers: relu_3_8
\tFunction: conv2d (gradfunc=ConvolutionBackward0)\x20
\tComputed inside module: features.6
\tTime elapsed:  5.670E-04s
\tOutput of modules: features.6
\tOutput of bottom-level module: features.6
\tLookup keys: -17, 7, conv2d_3_7, conv2d_3_7:1, features.6, features.6:1
'''

# You can pull out the actual output activations from a layer with the tensor_contents field:\x20
print(model_history['conv2d_3_7'].tensor_contents)
'''
tensor([[[[-0.0867, -0.0787, -0.0817,  ..., -0.0820, -0.0655, -0.0195],
          [-0.1213, -0.1130, -0.1386,  ..., -0.1331, -0.1118, -0.0520],
          [-0.0959, -0.0973, -0.1078,  ..., -0.1103, -0.1091, -0.0760],
          ...,
          [-0.0906, -0.1146, -0.1308,  ..., -0.1076, -0.1129, -0.0689],
          [-0.1017, -0.1256, -0.1100,  ..., -0.1160, -0.1035, -0.0801],
          [-0.1006, -0.0941, -0.1204,  ..., -0.1146, -0.1065, -0.0631]]...
'''
"""


class Statement(NamedTuple):
    """One statement of the seed, and what happened when it ran."""

    source: str
    error: Exception | None
    printed: str
    shown: str | None  # what the seed says it prints


class Seed(NamedTuple):
    """All of the seed, run."""

    statements: list[Statement]
    names: dict[str, Any]
    random_seed: int  # of the default generator when it ran

    @property
    def history(self) -> tl.ModelHistory:
        return self.names["model_history"]

    def of(self, source: str) -> Statement:
        return next(statement for statement in self.statements if statement.source == source)


def nodes_of(block: str) -> list[tuple[ast.stmt, str | None]]:
    """The statements of a block, each with the text in quotes after it."""
    nodes: list[tuple[ast.stmt, str | None]] = []
    for node in ast.parse(block).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            nodes[-1] = (nodes[-1][0], str(node.value.value).lstrip("\n"))
        else:
            nodes.append((node, None))
    return nodes


SOURCES = [ast.unparse(node) for block in (FIRST_BLOCK, SECOND_BLOCK) for node, _ in nodes_of(block)]


def run() -> Seed:
    """Run both blocks, with a stand-in for torchvision that has nothing but ``models.alexnet``."""
    torchvision = types.ModuleType("torchvision")
    torchvision.models = types.ModuleType("torchvision.models")  # type: ignore[attr-defined]
    torchvision.models.alexnet = AlexNet  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    statements = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", torchvision)
        patch.setitem(sys.modules, "torchvision.models", torchvision.models)
        for node, shown in (pair for block in (FIRST_BLOCK, SECOND_BLOCK) for pair in nodes_of(block)):
            out, failure = io.StringIO(), None
            try:
                with redirect_stdout(out):
                    exec(compile(ast.Module([node], []), "seed", "exec"), names)
            except Exception as error:  # noqa: BLE001 - told by the test of the statement
                failure = error
            statements.append(Statement(ast.unparse(node), failure, out.getvalue(), shown))
    return Seed(statements, names, torch.initial_seed())
