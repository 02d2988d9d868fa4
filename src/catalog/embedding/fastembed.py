"""ONNX models, the default: from files on this machine, or fetched by fastembed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.core.errors import ModelUnavailableError
from catalog.core.settings import EmbeddingSettings
from catalog.embedding.encoder import make_fingerprint
from catalog.embedding.profiles import Pooling, ProfiledEncoder
from catalog.embedding.windows import ModelTokenCounter
from catalog.models.model_files import ModelFiles

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from catalog.embedding.encoder import Vector

_FINISHED = "sentence_embedding"  # the output of graphs that pool themselves
_MODES: Mapping[str, Pooling] = {  # in two forms, as a value and as a key
    **dict.fromkeys(("cls", "pooling_mode_cls_token"), "cls"),
    **dict.fromkeys(("mean", "pooling_mode_mean_tokens"), "mean"),
}


class FastEmbedEncoder(ProfiledEncoder):
    """A model from an installed package, from a folder, or from the hub, in that order."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        super().__init__(settings)
        self._files = ModelFiles("embedding", "fastembed", settings.model, offline=settings.offline)

    @cached_property
    def fingerprint(self) -> str:
        """Identify the weights, their pooling and the tokens read."""
        parts = self._files.weights_hash, self._pooling, self.max_tokens
        return make_fingerprint("fastembed", *parts, *self._cut_mark())

    @cached_property
    def _config(self) -> dict[str, Any]:
        folder = self._files.folder
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailableError(f"{folder} has no readable config.json") from error
        return config if isinstance(config, dict) else {}

    @property
    def dim(self) -> int:
        """Length of every vector."""
        return self._chosen_dim(self._profile.dim or int(self._config["hidden_size"]))

    @property
    def max_tokens(self) -> int:
        """Tokens the model reads, special ones included."""
        return self._profile.max_tokens or int(self._config.get("max_position_embeddings", 512))

    @cached_property
    def counter(self) -> ModelTokenCounter:
        """The model's own tokenizer."""
        path = self._files.folder / "tokenizer.json"
        return ModelTokenCounter(path, f"tokenizer of {self.model}")

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of shape ``(dim,)`` for each text, in order.

        A model whose vectors depend on their batch gets one text in each call, so that an
        interrupted build ends with the same vectors as any other. There are as many parallel calls
        as threads, with one thread each, because several threads in a call wait for each other.
        """
        return self._profile.cut(self._encode(texts), self.dim)

    def _encode(self, texts: Sequence[str]) -> list[Vector]:
        import numpy as np

        if not self.is_run_alone:
            vectors = list(self._loaded.embed(list(texts), batch_size=self._settings.batch_size))
            if self._files.export:  # fastembed gives those of nomic's models in any length
                return [one / max(float(np.linalg.norm(one)), 1e-12) for one in vectors]
            return vectors
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        threads, embed = self._settings.threads or cores or 1, self._loaded.embed
        with ThreadPoolExecutor(threads, thread_name_prefix="embedding") as pool:
            return list(pool.map(lambda text: next(iter(embed([text], batch_size=1))), texts))

    @property
    def is_run_alone(self) -> bool:
        """Whether each text is a separate call, in one thread."""
        known = self._files.known
        return known is not None and not known.batch_invariant

    @cached_property
    def _loaded(self) -> Any:
        self._files.verify()
        threads = 1 if self.is_run_alone else self._settings.threads
        folder = self._files.folder
        if not self._files.export:
            return open_onnx_model(
                self._files.weights_file,
                folder / "tokenizer.json",
                pooling=self._pooling,
                max_tokens=self.max_tokens,
                threads=threads,
            )
        from fastembed import TextEmbedding

        return TextEmbedding(self._files.export, specific_model_path=str(folder), threads=threads)

    @cached_property
    def _pooling(self) -> Pooling:
        known = self._profile.pooling  # fastembed pools its exports itself
        return known if self._files.export else read_pooling(self._files.folder) or known


def read_pooling(folder: Path) -> Pooling | None:
    """Return how sentence-transformers makes a vector, by the files in a folder; ``None`` without.

    Any layer after the pooling counts as ``other``.
    """
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        paths = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
        pooling = json.loads((folder / paths["Pooling"] / "config.json").read_text("utf-8"))
        flags = (name for name in pooling if name.startswith("pooling_mode_") and pooling[name])
        modes = [str(pooling["pooling_mode"])] if "pooling_mode" in pooling else list(flags)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    is_plain = len(modes) == 1 and set(paths) <= {"Transformer", "Pooling", "Normalize"}
    return _MODES.get(modes[0], "other") if is_plain else "other"


def open_onnx_model(weights: Path, tokenizer: Path, **options: Any) -> OnnxModel:
    """Return the :class:`OnnxModel` of these files and options, loaded once in a process.

    Loading takes longer than a search. A forked process cannot use its parent's sessions.
    """
    changed = weights.stat().st_mtime_ns, tokenizer.stat().st_mtime_ns
    return _load_model(os.getpid(), changed, weights, tokenizer, **options)


@lru_cache(maxsize=4)
def _load_model(
    process: int,  # noqa: ARG001 - part of the key, as is the next
    changed: tuple[int, int],  # noqa: ARG001
    weights: Path,
    tokenizer: Path,
    **options: Any,
) -> OnnxModel:
    return OnnxModel(weights, tokenizer, **options)


class OnnxModel:
    """A model run from its files without fastembed, whose import takes half a second.

    Vectors and scores equal fastembed's to the bit.
    """

    def __init__(
        self,
        weights: Path,
        tokenizer: Path,
        *,
        max_tokens: int,
        threads: int | None,
        pooling: Pooling = "cls",
    ) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = options.inter_op_num_threads = threads
        cuda = "CUDAExecutionProvider"
        has_cuda = cuda in onnxruntime.get_available_providers()
        providers = [cuda if has_cuda else "CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(str(weights), options, providers=providers)
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._outputs = [self._session.get_outputs()[0].name]
        if pooling not in ("cls", "mean"):
            self._outputs = [_FINISHED]
            if _FINISHED not in {node.name for node in self._session.get_outputs()}:
                raise ModelUnavailableError(
                    f"the graph {weights} lacks the last steps of the model, from tokens to a "
                    "vector: run it from a folder of safetensors with "
                    "IDX_EMBEDDING__PROVIDER=huggingface"
                )
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.enable_padding(**{**(self._tokenizer.padding or {}), "length": None})
        self._pooling = pooling

    def embed(self, texts: Sequence[str], *, batch_size: int) -> Iterator[Vector]:
        """Yield one vector of length 1 for each text, in order."""
        import numpy as np

        for states, mask in self._run(texts, batch_size):
            if states.ndim == 2:  # finished by the graph
                pooled = states
            elif self._pooling == "cls":
                pooled = states[:, 0]
            else:
                real = mask[:, :, np.newaxis].astype(bool)
                total = states.sum(axis=1, where=real, dtype=np.float64)
                pooled = total / np.maximum(mask.sum(axis=1, keepdims=True), 1e-9)
            norm = np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
            yield from (pooled / norm).astype(np.float32, copy=False)

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_size: int) -> Iterator[float]:
        """Yield the first logit of each pair of query and passage, in order."""
        for logits, _ in self._run(pairs, batch_size):
            if logits.ndim != 2:
                raise ModelUnavailableError(
                    "its graph lacks the last steps, from tokens to a score: run it from a folder "
                    "of safetensors with IDX_RAG_V2__RERANK_PROVIDER=sentence_transformers"
                )
            yield from logits[:, 0].tolist()

    def _run(
        self, inputs: Sequence[str] | Sequence[tuple[str, str]], batch_size: int
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        """Yield the model's first output for each batch, and which tokens are not padding."""
        import numpy as np

        for start in range(0, len(inputs), batch_size):
            encoded = self._tokenizer.encode_batch(list(inputs[start : start + batch_size]))
            mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
            given = {
                "input_ids": np.array([one.ids for one in encoded], dtype=np.int64),
                "attention_mask": mask,
                "token_type_ids": np.array([one.type_ids for one in encoded], dtype=np.int64),
            }
            known = {name: array for name, array in given.items() if name in self._inputs}
            yield self._session.run(self._outputs, known)[0], mask
