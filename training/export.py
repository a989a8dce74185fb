"""Export a trained encoder to the files that the package ships.

The weights become 8-bit numbers. The mean over the tokens, the projection of each token, the normalization
and the conversion to bytes become part of the graph: these are small matrices, for which starting the threads
of a BLAS library takes longer than the computation.

`python training/export.py MODEL.onnx TOKENIZER.json PROJECTION.npy FOLDER` writes `encoder.onnx`,
`tokenizer.json` and `manifest.json`, which has the size and the digest of both.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

INT8_SCALE = 127  # the byte for 1.0


def export(model: Path, tokenizer: Path, projection: NDArray[np.float32], folder: Path) -> None:
    """Write the files of the package from a model, its tokenizer and its projection."""
    folder.mkdir(parents=True, exist_ok=True)
    quantize_encoder(model, folder / "encoder.onnx", projection)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    write_manifest(folder)


def write_manifest(folder: Path) -> None:
    """Record the size and the SHA-256 digest of the files, which the package verifies when it loads them."""
    contents = {name: (folder / name).read_bytes() for name in ("encoder.onnx", "tokenizer.json")}
    manifest = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def quantize_encoder(source: Path, target: Path, projection: NDArray[np.float32]) -> None:
    """Quantize the encoder in `source` to `target`, with the outputs `pooled` and `tokens`."""
    model = onnx.load(source)
    add_pre_process_metadata(model)  # otherwise a warning of a skipped step goes to the root logger
    # One scale per channel: cosine 0.99 with the original, against 0.95 with one scale per matrix.
    quantize_dynamic(model, target, weight_type=QuantType.QInt8, per_channel=True)
    model = onnx.load(target)
    append_output_layers(model.graph, projection)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def append_output_layers(graph: onnx.GraphProto, projection: NDArray[np.float32]) -> None:
    """Replace the output, the states of the last layer, by pooled vectors and token vectors."""
    states = graph.output[0].name
    size, projected = projection.shape
    node = onnx.helper.make_node
    graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(projection.astype(np.float32), "omoide_projection"),
            onnx.numpy_helper.from_array(np.array(INT8_SCALE, dtype=np.float32), "omoide_steps"),
        ]
    )
    graph.node.extend(
        [
            node("ReduceMean", [states], ["omoide_mean"], axes=[1], keepdims=0),
            node("LpNormalization", ["omoide_mean"], ["pooled"], axis=-1, p=2),
            node("MatMul", [states, "omoide_projection"], ["omoide_projected"]),
            node("LpNormalization", ["omoide_projected"], ["omoide_directions"], axis=-1, p=2),
            node("Mul", ["omoide_directions", "omoide_steps"], ["omoide_scaled"]),
            node("Round", ["omoide_scaled"], ["omoide_rounded"]),
            node("Cast", ["omoide_rounded"], ["tokens"], to=onnx.TensorProto.INT8),
        ]
    )
    output, types = onnx.helper.make_tensor_value_info, onnx.TensorProto
    del graph.output[:]
    graph.output.extend(
        [
            output("pooled", types.FLOAT, ["texts", size]),
            output("tokens", types.INT8, ["texts", "tokens", projected]),
        ]
    )


if __name__ == "__main__":
    model_path, tokenizer_path, projection_path, target_folder = map(Path, sys.argv[1:5])
    export(model_path, tokenizer_path, np.load(projection_path, allow_pickle=False), target_folder)
