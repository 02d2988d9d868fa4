"""Small real models for tests: tables of word vectors, as the static provider reads them."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from catalog.core.settings import EmbeddingSettings


def make_model(
    folder: Path, words: Sequence[str], table: Sequence[Sequence[float]], dtype: str = "F16"
) -> EmbeddingSettings:
    """Write a model of these words; the first one's vector is that of unknown words."""
    folder.mkdir(parents=True)
    numbers = np.array(table, dtype={"F16": "<f2", "F32": "<f4"}[dtype])
    size = numbers.nbytes
    entry = {"dtype": dtype, "shape": list(numbers.shape), "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {}, "embeddings": entry}).encode()
    content = len(header).to_bytes(8, "little") + header + numbers.tobytes()
    (folder / "model.safetensors").write_bytes(content)
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return EmbeddingSettings(provider="static", model=str(folder))
