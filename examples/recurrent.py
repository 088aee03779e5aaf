"""Record a model that feeds a state back through one layer: a loop is one layer with several passes.

python examples/recurrent.py
"""

import torch
from models import SimpleRecurrent

import torcheer as tl

torch.manual_seed(0)
model_history = tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5), vis_opt="rolled")
print(model_history)
print()

print("The layer, with all its passes:")
print(model_history["linear_1"])
print()

print("One pass of it:")
print(model_history["linear_1:2"])
print()

print("Its graph, rolled up:", model_history.drawing.save("recurrent.svg"))
