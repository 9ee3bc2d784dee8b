"""A sentence model in a local ONNX file, for search by meaning without a service. It needs `metier[onnx]`.

The file is one that exporters of BERT-like models write: it takes the numbers of tokens and returns a vector for each
token. The mean of these vectors is the vector of the text. ONNX Runtime sends usage data to its makers by default; that
is switched off here, unless `ORT_DISABLE_TELEMETRY` is set.

    from metier.adapters.embeddings import EmbeddingRanker
    from metier.adapters.onnx_embedding import OnnxEmbedding

    ranker = EmbeddingRanker(OnnxEmbedding("minilm/model.onnx", "minilm/tokenizer.json"), cache="vectors.sqlite")
"""

import hashlib
import importlib
import os
from collections.abc import Sequence
from typing import Any, Final

from metier.errors import report_missing

try:
    import numpy as np
except ImportError as error:
    report_missing(error, "a model in an ONNX file", "onnx")

LONGEST: Final = 256
"""The tokens of a text that count, unless the model was made for more."""


class OnnxEmbedding:
    """Makes vectors with a model in a file. Its name has a digest of the file, so another model has other vectors."""

    def __init__(self, model: str, tokenizer: str, *, longest: int = LONGEST) -> None:
        """`model` is the ONNX file, and `tokenizer` its `tokenizer.json`."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it counts only before the first import of the runtime
        try:
            runtime: Any = importlib.import_module("onnxruntime")
            tokenizers: Any = importlib.import_module("tokenizers")
        except ImportError as error:
            report_missing(error, "a model in an ONNX file", "onnx")
        with open(model, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.name = f"onnx:{os.path.basename(model)}:{digest[:16]}:{longest}"
        self._session: Any = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._inputs: set[str] = {one.name for one in self._session.get_inputs()}
        shape: list[object] = self._session.get_outputs()[0].shape
        if "input_ids" not in self._inputs or len(shape) != 3:
            raise ValueError(
                f"{model}: not a sentence model, which takes input_ids and returns a vector for each token"
            )
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(tokenizer)
        self._tokenizer.enable_truncation(longest)
        self._tokenizer.enable_padding()

    def documents(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        encoded = self._tokenizer.encode_batch(list(texts))
        numbers = np.asarray([one.ids for one in encoded], dtype=np.int64)
        mask = np.asarray([one.attention_mask for one in encoded], dtype=np.int64)
        given = {"input_ids": numbers, "attention_mask": mask, "token_type_ids": np.zeros_like(numbers)}
        tokens = self._session.run(None, {name: value for name, value in given.items() if name in self._inputs})[0]
        counted = mask[..., None].astype(np.float32)  # what only fills up a shorter text does not count
        return (tokens * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)

    def query(self, text: str) -> Sequence[float]:
        return self.documents([text])[0]
