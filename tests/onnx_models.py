"""Tiny ONNX models in folders: the state of token n is zero but for a one at place n."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ("[CLS]", "ice", "tea", "[UNK]", "[PAD]")


def make_onnx_model(
    folder: Path,
    *,
    dim: int,
    pooling: str | Sequence[str] | None = None,
    layers: Sequence[str] = (),
    form: str = "new",
    finished: bool = False,
) -> Path:
    """Write a model that looks up the states of its tokens.

    With ``pooling``, also the files that describe it for sentence-transformers, in the ``form`` of
    old or new releases, with ``layers`` after it. ``finished``: the graph returns the sum of the
    states as well, with a one at the first four places at least, as ``sentence_embedding``.
    """
    onnx = pytest.importorskip("onnx")
    folder.mkdir(parents=True)
    table = np.eye(len(WORDS), dim, dtype=np.float32)
    nodes = [onnx.helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    shape = onnx.TensorProto.FLOAT
    outputs = [onnx.helper.make_tensor_value_info("last_hidden_state", shape, ["b", "t", dim])]
    tensors = [onnx.numpy_helper.from_array(table, "table")]
    if finished:
        ones = np.zeros(dim, dtype=np.float32)
        ones[:4] = 1
        tensors.append(onnx.numpy_helper.from_array(ones, "ones"))
        tensors.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))
        nodes.append(
            onnx.helper.make_node("ReduceSum", ["last_hidden_state", "axis"], ["s"], keepdims=0)
        )
        nodes.append(onnx.helper.make_node("Max", ["s", "ones"], ["sentence_embedding"]))
        outputs.append(onnx.helper.make_tensor_value_info("sentence_embedding", shape, ["b", dim]))
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["b", "t"])
    graph = onnx.helper.make_graph(nodes, "tiny", [ids], outputs, tensors)
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.save(model, folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"hidden_size": dim}))
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 64}')
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    if pooling is not None:
        _describe(folder, pooling, layers, form)
    return folder


def _describe(folder: Path, pooling: str | Sequence[str], layers: Sequence[str], form: str) -> None:
    kinds = ("Transformer", "Pooling", *layers, "Normalize")
    described = [
        {"idx": place, "path": f"{place}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(described))
    (folder / "1_Pooling").mkdir()
    names = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    config = (
        {"embedding_dimension": 8, "pooling_mode": pooling, "include_prompt": True}
        if form == "new"
        else {key: mode == pooling for mode, key in names.items()} | {"include_prompt": True}
    )
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
