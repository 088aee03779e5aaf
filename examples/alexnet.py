"""Record AlexNet and look things up in the record, in each of the ways a layer can be named.

python examples/alexnet.py
"""

import torch
from models import AlexNet

import torcheer as tl

torch.manual_seed(0)
alexnet = AlexNet()
x = torch.rand(1, 3, 224, 224)
model_history = tl.log_forward_pass(alexnet, x, layers_to_save="all", vis_opt="unrolled")
print(model_history)
print()

layer = model_history["conv2d_3_7"]
print(layer)
print()

print("Other keys of the same layer:")
for key in ("conv2d_3", "conv2d_3_7:1", "features.6", 7, -17):
    print(f"    model_history[{key!r}] is {model_history[key].label}: {model_history[key] == layer}")
print()

print("Its activations:")
print(layer.tensor_contents)
print()

print("Its graph:", model_history.drawing.save("alexnet.svg"))
