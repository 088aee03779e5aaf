"""ONNX models, run through onnxruntime: the only rooms that import either. Both are an extra, ``torcheer[onnx]``."""
