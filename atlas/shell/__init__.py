"""What every page is made of: the frame around it, the frame of a figure, fields, words, rows and empty states."""

from atlas.shell.callbacks import SHARED, FigureMeta, Page, register, shared_view
from atlas.shell.figures import (
    NUMBER_COLUMNS,
    Children,
    ag_grid,
    build,
    builds_told,
    csv_text,
    facts,
    figure_body,
    figure_section,
    framed,
    graph,
    grid_section,
    hashed,
    header,
    loading,
    number_column,
    records,
    small_table,
    table,
    tools,
)  # fmt: skip
from atlas.shell.frame import frame
from atlas.shell.words import (
    BY_WORDS,
    ORIGINS,
    empty,
    family_link,
    icon,
    labelled,
    named,
    no_generation,
    nowhere,
    origin_badge,
    reader_options,
    segmented,
    select,
    settled,
    source_link,
    source_name,
    source_options,
    source_path,
    source_search,
    symbol,
    term,
    unknown,
)  # fmt: skip

__all__ = [
    "BY_WORDS", "NUMBER_COLUMNS", "ORIGINS", "SHARED", "Children", "FigureMeta", "Page", "ag_grid", "build",
    "builds_told", "csv_text", "empty", "facts", "family_link", "figure_body", "figure_section", "frame", "framed",
    "graph", "grid_section", "hashed", "header", "icon", "labelled", "loading", "named", "no_generation", "nowhere",
    "number_column", "origin_badge", "reader_options", "records", "register", "segmented", "select", "settled",
    "shared_view", "small_table", "source_link", "source_name", "source_options", "source_path", "source_search",
    "symbol", "table", "term", "tools", "unknown",
]  # fmt: skip
