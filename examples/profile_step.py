"""Where the time, memory and FLOPs of a training step go, and where a NaN is born.

python examples/profile_step.py
"""

import torch
from models import TinyGPT

import torcheer as tl


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, ids = TinyGPT(), torch.randint(0, 50, (4, 16))

    # In your own training step, unchanged.
    optimizer = torch.optim.AdamW(model.parameters())
    with tl.InspectorGadgets(model) as inspector:
        loss = model(ids).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
    print(inspector.report.table(depth=2))

    # Or in runs of its own, repeated for their times; the model stays as it is.
    report = tl.profile(model, ids, backward=True, repeats=10)
    leaves = [row for row in report.rows if not row.children]
    slowest = max(leaves, key=lambda row: row.total.time_ns or 0)
    print(f"\nslowest module: {slowest.address}, {slowest.type_name}")
    print(f"FLOPs of a step: {report.totals.figures.flops:,}, and {len(report.notes)} notes")

    # A weight goes wrong: the op where NaN first shows, with its module and line.
    with torch.no_grad():
        model.blocks[1].mlp[0].weight[3] = float("inf")
    found = tl.profile(model, ids, measure="nan").alarms[0]
    print(f"\n{found.text}")


if __name__ == "__main__":
    main()
