"""Watching where people train and look: Weights & Biases, TensorBoard, Lightning, the Hugging Face Trainer.

Leaves: each is imported by whoever wants it, stands on the public API, and needs a package of its own.
"""
