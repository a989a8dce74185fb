"""Fixtures of the embedder tests: a tiny encoder, and the real one where it has been pulled."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from omoide.embedders import Embedder, choose
from omoide.embedders import models as cache

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "##s", "run", "##ning", "cat", "sleep", "!"]
SIZE = 384


def tiny_model() -> bytes:
    """Return an encoder of the published shape that knows twelve word pieces."""
    rng = np.random.default_rng(7)
    table = rng.standard_normal((len(WORDS), SIZE)).astype(np.float32)
    weights = rng.standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE**0.5
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["found"]),
            helper.make_node("MatMul", ["found", "weights"], ["last_hidden_state"]),
        ],
        "tiny",
        inputs,
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", SIZE])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def tiny_tokenizer() -> bytes:
    """Return a tokenizer for the same pieces; it pads and truncates, as the published one does."""
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(128)
    return tokenizer.to_str().encode()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback directly, whatever proxy the machine has."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="session")
def published() -> dict[str, bytes]:
    """Return the files of the tiny encoder, by their published path."""
    return {"/onnx/model.onnx": tiny_model(), "/tokenizer.json": tiny_tokenizer()}


@pytest.fixture(scope="session")
def tiny_folder(published: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny encoder, ready for use."""
    from omoide.embedders.quantization import quantize_encoder

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "published.onnx").write_bytes(published["/onnx/model.onnx"])
    (folder / "tokenizer.json").write_bytes(published["/tokenizer.json"])
    quantize_encoder(folder / "published.onnx", folder / "model.onnx")
    cache.mark_complete(folder, ["model.onnx", "tokenizer.json"])
    return folder


@pytest.fixture
def minilm() -> Embedder:
    """Return the real encoder, or skip."""
    if not cache.status().ready:
        pytest.skip("MiniLM is not in the cache: run `omoide models pull`")
    found = choose("minilm")
    assert found is not None
    return found
