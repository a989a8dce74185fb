"""Conversion of a published encoder to the int8 ONNX model.

The weights become 8-bit numbers. The mean over the tokens, the projection of each token, the normalization
and the conversion to bytes become part of the graph: these are small matrices, for which starting the threads
of a BLAS library takes longer than the computation.

The projection keeps the 64 directions in which the encoder's own words differ most: the leading eigenvectors
of the second moments of its last layer, over the first 6,000 words of its vocabulary that have three or more
letters from a to z, each encoded alone. It is a file of this package, because eigenvectors computed anew
could have the opposite sign, and would not match stored vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omoide.errors import MissingExtra

if TYPE_CHECKING:
    from numpy.typing import NDArray


try:
    import numpy as np
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata
except ImportError as error:
    raise MissingExtra("making a model ready", "vector") from error

PROJECTION = Path(__file__).with_name("minilm_projection.npy")
INT8_SCALE = 127  # the byte for 1.0


def quantize_encoder(source: Path, target: Path) -> None:
    """Quantize the encoder in `source` to `target`, with the outputs `pooled` and `tokens`."""
    model = onnx.load(source)
    add_pre_process_metadata(model)  # otherwise a warning of a skipped step goes to the root logger
    # One scale per channel: cosine 0.99 with the original, against 0.95 with one scale per matrix.
    quantize_dynamic(model, target, weight_type=QuantType.QInt8, per_channel=True)
    model = onnx.load(target)
    _append_output_layers(model.graph)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def load_projection() -> NDArray[np.float32]:
    """Return the matrix that projects a token from 384 dimensions to 64."""
    return np.asarray(np.load(PROJECTION, allow_pickle=False), dtype=np.float32)


def _append_output_layers(graph: onnx.GraphProto) -> None:
    states = graph.output[0].name
    size, projected = load_projection().shape
    node = onnx.helper.make_node
    graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(load_projection(), "omoide_projection"),
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
