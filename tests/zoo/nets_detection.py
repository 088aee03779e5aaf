"""Networks that find things in images: pyramids, anchors, boxes, peaks."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.nets_vision import UNet, conv
from tests.zoo.specimen import Built, quick


class FeaturePyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bottom_up = nn.ModuleList([conv(3, 8, 3, 2), conv(8, 16, 3, 2), conv(16, 32, 3, 2)])
        self.lateral = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(32, 8, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for layer in self.bottom_up:
            x = layer(x)
            features.append(x)
        top = self.lateral[2](features[2])
        pyramid = [top]
        for place in (1, 0):
            top = self.lateral[place](features[place]) + F.interpolate(top, scale_factor=2.0)
            pyramid.insert(0, top)
        return pyramid


class RetinaNet(nn.Module):
    """Anchors, boxes, scores, and suppression: operators whose sizes depend on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.features = FeaturePyramid()
        self.scores, self.boxes = nn.Conv2d(8, 3, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        levels = self.features(x)
        scores = torch.cat([self.scores(level).flatten(2).mT for level in levels], 1)[0].sigmoid()
        boxes = torch.cat([self.boxes(level).flatten(2).mT for level in levels], 1)[0]
        best, labels = scores.max(1)
        kept = torch.nonzero(best > best.median())[:, 0]
        order = kept[best[kept].argsort(descending=True)]
        chosen: list[Tensor] = []
        while len(order) and len(chosen) < 5:
            chosen.append(order[0])
            near = (boxes[order] - boxes[order[0]]).abs().sum(1) < 0.5
            order = order[~near]
        index = torch.stack(chosen)
        return {"boxes": boxes[index], "labels": labels[index], "scores": best[index]}


class Yolo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(conv(3, 8, 3, 2), conv(8, 16, 3, 2)), nn.Conv2d(16, 2 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[10.0, 13.0], [16.0, 30.0]]))

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.body(x))
        n, _, h, w = out.shape
        out = out.view(n, 2, 7, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid().clone()
        grid = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1)
        out[..., :2] = (out[..., :2] * 2 - 0.5 + grid) * 4
        out[..., 2:4] = (out[..., 2:4] * 2) ** 2 * self.anchors.view(1, 2, 1, 1, 2)
        return out.view(n, -1, 7)


class RoiHead(nn.Module):
    """Cuts boxes out of a feature map by sampling, as Faster R-CNN does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes, self.deltas = conv(3, 8, 3, 2), nn.Linear(8 * 9, 4), nn.Linear(8 * 9, 16)

    def forward(self, x: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        steps = torch.linspace(-1, 1, 3)
        cells = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
        centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
        grid = centre[:, None, None] + cells * half[:, None, None]
        cut = F.grid_sample(features.expand(len(boxes), -1, -1, -1), grid, align_corners=True).flatten(1)
        return self.classes(cut), self.deltas(cut)


class CenterNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.heat = UNet(), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heat = self.heat(self.body(x)).sigmoid()
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        scores, index = peaks.flatten(1).topk(4)
        return scores, index % 32, torch.div(index, 32, rounding_mode="floor") % 32


def _of_image(model: type[nn.Module]) -> Built:
    return model(), {"x": torch.randn(1, 3, 32, 32)}


_IMAGES = (FeaturePyramid, RetinaNet, Yolo, CenterNet)

SPECIMENS = [
    *quick("detection", **{model.__name__: partial(_of_image, model) for model in _IMAGES}),
    *quick("detection", RoiHead=lambda: (RoiHead(), {"x": torch.randn(1, 3, 32, 32), "boxes": torch.rand(5, 4)})),
]
