"""Who stands in the rows of the paper's tables: its readers and baselines, and ours that answer the same question."""

from __future__ import annotations

from backend.protocol import READER_PAPER
from backend.reference.layout import Row, attribution, reader
from backend.reference.rows import MAIN

OURS = f"{READER_PAPER}/{{proxy}}/ur"
LONG = {
    "llama31_8b_instruct": "Llama-3.1-8B-Instruct",
    "gemma4_12b": "Gemma-4-12B",
    "ministral3_8b": "Ministral-3-8B",
    "qwen35_9b": "Qwen3.5-9B",
    "olmo3_7b_instruct": "OLMo-3-7B-Instruct",
    "qwen3_8b": "Qwen3-8B",
    "qwen3_32b": "Qwen3-32B",
    "qwen35_27b": "Qwen3.5-27B",
}
SHORT = dict(zip(MAIN, ("Llama", "Gemma", "Ministral", "Qwen"), strict=True))
ALLK = LONG | {"gemma4_12b": "Gemma-4-12B-it"}
PURITY = LONG | {"llama31_8b_instruct": "Llama-3.1-8B", "olmo3_7b_instruct": "OLMo-3-7B"}
MAIN_UR = tuple(reader(proxy) for proxy in MAIN)
NGRAMS = (Row("Word n-grams", (), "ngram-word"), Row("Character n-grams", (), "ngram-char"))
"""Ours: the paper has none."""
MAPPED = (Row("READER, prompt and response", (), OURS), Row("LLM-DNA", (), "dna/{proxy}/{view}"), *NGRAMS)
"""Ours in the original space, beside the paper's view."""
BASELINES = (
    Row("Random", ("published-random",), "random"),
    Row("LLMmap", ("published-llmmap",), "llmmap/{proxy}/ur"),
    Row("DNA / MPNet", ("dna/mpnet/r",), "dna/{proxy}/{view}"),
    Row("DNA / BGE", ("dna/bge-large/r",), "dna/{proxy}/{view}"),
    Row("DNA / Qwen-Emb.", ("dna/qwen3-embedding-8b/r",), "dna/{proxy}/{view}"),
    Row("FT DeBERTa", ("published-deberta",), "deberta/{proxy}/{view}"),
    *NGRAMS,
)
FULL_BASELINES = (
    Row("Random", ("published-random",), "random"),
    Row("FT DeBERTa / DeBERTa-v3-L", ("published-deberta",), "deberta/{proxy}/{view}"),
    Row("LLMmap / E5-L", ("published-llmmap",), "llmmap/{proxy}/ur"),
    Row("DNA / MPNet", ("dna/mpnet/r",), "dna/{proxy}/{view}"),
    Row("DNA / BGE-L", ("dna/bge-large/r",), "dna/{proxy}/{view}"),
    Row("DNA / Qwen3-Emb-8B", ("dna/qwen3-embedding-8b/r",), "dna/{proxy}/{view}"),
    Row("FT DNA / MPNet", ("dna-finetuned/mpnet/r",), "encoder/{proxy}/{view}"),
    Row("FT DNA / BGE-L", ("dna-finetuned/bge-large/r",), "encoder/{proxy}/{view}"),
    Row("FT DNA / Qwen3-Emb-8B", ("dna-finetuned/qwen3-embedding-8b/r",), "encoder/{proxy}/{view}"),
    *NGRAMS,
)
STRESSED_PARTS = tuple(
    Row(name, (), f"{method}/{{proxy}}/ur")
    for name, method in (
        ("DC only", "reader-dc"),
        ("First AC only", "reader-ac"),
        ("PCA, 64 dimensions", "pca-64"),
        ("Class-centroid SVD, 64 dimensions", "centroid-svd"),
    )
)
"""Controls that the paper does not stress."""
MAIN_READERS = tuple(Row(f"READER / {SHORT[proxy]}", (reader(proxy),), OURS) for proxy in MAIN)


def _static(method: str, readout: str) -> Row:
    names = {"MPT": "mpt", "PhyloLM": "phylolm"}
    return Row(method, (f"published-{names[method]}",), names[method], where={"readout": readout})


STATIC_BASELINES = (
    _static("MPT", "match"),
    _static("PhyloLM", "match"),
    Row("DNA / MPNet", ("dna/mpnet/r",), "dna/{proxy}/{view}", where={"readout": "distance"}),
    Row("DNA / BGE", ("dna/bge-large/r",), "dna/{proxy}/{view}", where={"readout": "distance"}),
    Row("DNA / Qwen-Emb.", ("dna/qwen3-embedding-8b/r",), "dna/{proxy}/{view}", where={"readout": "distance"}),
)
STATIC_READERS = tuple(
    Row(
        f"READER / {SHORT[proxy]}",
        (reader(proxy),),
        OURS,
        where={"readout": "dc-ac@best"},
        ours_where={"readout": "dc-ac"},
        other={"readout": "dc-ac"},
        other_file=f"results/bench_a/reader/{proxy}_prompt_response.json",
    )
    for proxy in MAIN
)
STATIC = {"Acc.": "accuracy", "Precision": "precision", "Recall": "recall", "F1": "f1", "AUC": "auc"}
CLEAN = attribution("accuracy", 100, "fold")
STRESS_COLUMNS = {
    f"{short} {name}": attribution(metric, 100, "pooled", condition=condition)
    for short, condition in (("32", "t32-global"), ("64", "t64-global"))
    for name, metric in (("Acc.", "accuracy"), ("M-F1", "macro_f1"))
} | {
    f"Math100 {name}{ending}": attribution(metric, 100, "fold", column, benchmark="math100")
    for name, metric in (("Acc.", "accuracy"), ("M-F1", "macro_f1"))
    for ending, column in (("", "value"), (" std", "std"))
}
TEMPORAL_ROWS = {
    "All-token mean (DC)": "temporal-mean",
    "Final token": "temporal-final",
    "Coordinate-wise maximum": "temporal-max",
    "Mean + final": "temporal-mean-final",
    "Mean + maximum": "temporal-mean-max",
    "Final + maximum": "temporal-final-max",
    "Learned one-head mixture": "mixture-1",
    "Learned two-head mixture": "mixture-2",
    "DC–AC (DCT q=2)": "dct-q2",
    "DCT q=4": "dct-q4",
    "DCT q=8": "dct-q8",
}
COMPONENT_ROWS = {
    "DC only": ("reader-dc", "dc"),
    "First AC only": ("reader-ac", "ac"),
    "DC–AC": (READER_PAPER, "dc-ac"),
}
