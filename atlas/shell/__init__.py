"""What every page is made of: the frame around it, the frame of a figure, fields, words, rows and empty states."""

from atlas.shell.callbacks import register
from atlas.shell.contract import SHARED, FigureMeta, Page, shared_view
from atlas.shell.fields import BY_WORDS, labelled, named, reader_options, segmented, source_options, source_search
from atlas.shell.frame import frame
from atlas.shell.rows import NUMBER_COLUMNS, builds_told, csv_text, header, records, table
from atlas.shell.sections import Children, figure_body, figure_section, framed, graph, grid_section, tools
from atlas.shell.states import empty, no_generation, nowhere, settled, unknown
from atlas.shell.words import (
    ORIGINS,
    family_link,
    icon,
    origin_badge,
    source_link,
    source_name,
    source_path,
    symbol,
    term,
)

__all__ = [
    "BY_WORDS",
    "NUMBER_COLUMNS",
    "ORIGINS",
    "SHARED",
    "Children",
    "FigureMeta",
    "Page",
    "builds_told",
    "csv_text",
    "empty",
    "family_link",
    "figure_body",
    "figure_section",
    "frame",
    "framed",
    "graph",
    "grid_section",
    "header",
    "icon",
    "labelled",
    "named",
    "no_generation",
    "nowhere",
    "origin_badge",
    "reader_options",
    "records",
    "register",
    "segmented",
    "settled",
    "shared_view",
    "source_link",
    "source_name",
    "source_options",
    "source_path",
    "source_search",
    "symbol",
    "table",
    "term",
    "tools",
    "unknown",
]
