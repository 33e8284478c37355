"""Enrol sources: labelled traces as an ecosystem of its own, a roster of the release, or the shipped sample.

TRACES is JSONL, CSV, Parquet or a chat log with a column that names the source of a response, such as python -m jobs
collect writes. The enrolment is one file in enrolments/ of the data folder, of numbers, names and hashes, without text.
An ecosystem also gets rows in the work database, which is published, so that it is in the header of the atlas; of
several in a row, all but the last can do without (--no-publish). The answers of a roster's enrolment to held-out groups
are written as well, as by python -m jobs cases.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from backend.cluster import fits
from backend.corpus.labelled import read_families, read_labelled
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.enrolment.fit import enrolment_of, sample_enrolment
from backend.enrolment.head_fits import AUTO, METHODS
from backend.enrolment.held_out_answers import fills_groups, reads_stored
from backend.enrolment.own_traces import EnrolOptions, check_name, enrol
from backend.enrolment.validation_lookup import validated_under
from backend.errors import AtlasError
from backend.evaluations.stages.readout_live import live_blocks
from backend.evaluations.stages.readouts import READ
from backend.intake import Columns
from backend.methods.registry import ENCODED, ENCODER, ENROLLABLE, LDA_LIVE
from backend.methods.sentence_encoder import DEFAULT_ENCODER
from backend.protocol import READER_PAPER
from backend.proxies import registry
from backend.proxies.registry import DEFAULT_PROXY, load_reader, proxies_key, proxy_hash, proxy_key
from jobs import options, publish
from jobs.cases import write_answers


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("traces", type=Path, nargs="?", metavar="TRACES", help="labelled traces")
    parser.add_argument("--name", help="of the ecosystem")
    parser.add_argument("--roster", help="rosters of the release, comma separated, from their evaluation")
    parser.add_argument("--sample", action="store_true", help="enrol the responses that are shipped with the atlas")
    text = f"proxy that reads the traces; several joined by '+'; the encoder of {', '.join(ENCODED)} (default: "
    parser.add_argument("--proxy", help=f"{text}{DEFAULT_PROXY}, as encoder {DEFAULT_ENCODER})")
    parser.add_argument("--view", help=f"input view, ur or r; for rosters also ur,r (default: ur, of {ENCODER} r)")
    text = (
        f"what scores the traces: of a file {', '.join(METHODS)}, or {AUTO}, the best of them on inner prompt "
        f"folds (default); of the sample {LDA_LIVE} or {READER_PAPER}, the paper's probe (default); of a roster "
        f"{LDA_LIVE}, discriminants over several blocks (default), or any reader evaluated on it"
    )
    parser.add_argument("--readout", choices=(AUTO, *ENROLLABLE), help=text)
    parser.add_argument("--layer", type=int, metavar="N", help="block of the proxy (default: selected fold by fold)")
    text = "also attach answers to held-out groups, which measure any choice of candidates"
    parser.add_argument("--held-out", action="store_true", help=text)
    options.add(parser, "device", "to")
    file = parser.add_argument_group("labelled traces")
    for role in ("label", "response", "prompt"):
        file.add_argument(f"--{role}-column", metavar="COLUMN", help=f"column of the {role} (dots reach inside)")
    options.add(file, "encoding")
    text = "column of what belongs together, such as a case; no such group is parted by a fold (default: conversation "
    file.add_argument(
        "--group-column", metavar="COLUMN", default="", help=f"{text}or session ids, and topics of prompts)"
    )
    file.add_argument("--families", type=Path, metavar="FILE", help="JSON object: source to family")
    text = "how the sources are served (default: %(default)s)"
    file.add_argument("--access", choices=("api", "local"), default="api", help=text)
    file.add_argument("--no-publish", action="store_true", help="write file and rows, and publish later")
    options.add(parser, "engine", "address", "workers", "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Enrol, and write the file and the rows; n-grams are fitted where the engine says."""
    options.check_engine(arguments)
    with fits(arguments.engine, arguments.address, arguments.workers):
        _enrol(arguments)


def _enrol(arguments: argparse.Namespace) -> None:
    arguments.proxy = arguments.proxy or (DEFAULT_ENCODER if arguments.readout in ENCODED else DEFAULT_PROXY)
    arguments.view = arguments.view or (READ if arguments.readout == ENCODER else "ur")
    folder = options.data_of(arguments) / "enrolments"
    if sum((arguments.traces is not None, bool(arguments.roster), arguments.sample)) != 1:
        remedy = "Give one of: TRACES with --name NAME, --roster 100-way, or --sample"
        raise AtlasError("It is not clear what to enrol", remedy)
    proxy_folder = Path(arguments.proxy).expanduser()
    if not arguments.roster and arguments.proxy not in registry.registered() and proxy_folder.is_dir():
        raise AtlasError(  # an enrolment holds only the name of its proxy
            f"Attribution would not find the proxy in {proxy_folder} again",
            f"Put it, or a link to it, into {registry.weights_folder()} and give its name there as --proxy",
        )
    if arguments.roster and arguments.readout == AUTO:
        raise AtlasError(f"--readout {AUTO} chooses for labelled traces", "Name the reader of the roster")
    if arguments.sample:
        if arguments.readout not in (None, LDA_LIVE, READER_PAPER):
            raise AtlasError(
                f"The sample is scored by {LDA_LIVE} or {READER_PAPER}, and not by {arguments.readout}",
                "Give --roster, whose evaluation the other readers need",
            )
        proxy = proxy_key(arguments.proxy)
        blocks = live_blocks(proxy) if arguments.readout == LDA_LIVE else None
        reader = load_reader(arguments.proxy, arguments.device)
        fitted, remaining = sample_enrolment(reader, proxy, blocks=blocks, held_out=arguments.held_out)
        _write(fitted, folder)
        print(f"{len(remaining)} responses to excluded prompts are there to try it on.")
    elif arguments.roster:
        release, proxy = options.release_of(arguments), proxies_key(arguments.proxy)
        method = arguments.readout or LDA_LIVE
        for roster in options.rosters_of(arguments.roster):
            for view in options.views_of(arguments.view):
                layer, limit, held_out = arguments.layer, arguments.limit, arguments.held_out
                fitted = enrolment_of(
                    release, proxy, view, roster, layer=layer, limit=limit, method=method, held_out=held_out
                )
                saved = _write(fitted, folder)
                if limit is None and reads_stored(saved) and fills_groups(saved):
                    write_answers(saved, release, folder.parent)
    else:
        name = _ecosystem(arguments, folder)
        if arguments.no_publish:
            print("It is in the header of the atlas after: python -m jobs publish")
        else:
            _publish(name, options.work_path(arguments), folder.parent)


def _ecosystem(arguments: argparse.Namespace, folder: Path) -> str:
    """Enrol labelled traces; the name of the enrolment."""
    if not arguments.name:
        raise AtlasError("The ecosystem has no name", "Give --name NAME")
    check_name(arguments.name)
    views = options.views_of(arguments.view)
    method = arguments.readout or AUTO
    if method not in (AUTO, *METHODS) or len(views) > 1 or arguments.limit is not None:
        raise AtlasError(
            f"Labelled traces are all read, in one view, and scored by {', '.join(METHODS)} or {AUTO}",
            "Leave --limit out, and give one --view and one of these; other readers need a roster's evaluation",
        )
    (view,) = views
    columns = Columns(response=arguments.response_column, prompt=arguments.prompt_column, label=arguments.label_column)
    families, group = read_families(arguments.families), arguments.group_column
    found = read_labelled(arguments.traces, columns, families, encoding=arguments.encoding, group=group)
    for note in found.notes:
        print(note)
    print(f"{len(found.traces):,} traces of {len(found.sources)} sources")
    proxy = (proxy_key(arguments.proxy), proxy_hash(arguments.proxy))
    name, held_out = arguments.name.strip(), arguments.held_out
    settings = EnrolOptions(name, *proxy, view, arguments.layer, arguments.access, method, held_out)
    reader = load_reader(arguments.proxy, arguments.device)
    with options.work_of(arguments) as connection:
        enrolment, fitted = enrol(connection, found, reader, settings)
    for line in fitted.choice.lines if fitted.choice else ():
        print(line)
    print(validated_under(enrolment.facts))
    if not found.grouping.validates:
        print("Nothing is calibrated: every verdict will be INCONCLUSIVE. Give traces of more groups to validate it.")
    measured = fitted.validation[fitted.validation["condition"].eq("clean")]
    for metric, where in (("accuracy_after", "held-out groups of prompts"), ("accuracy", "the last fifth of the time")):
        for row in measured[measured["metric"].eq(metric)].sort_values("k").itertuples():
            print(f"  K = {row.k:>3}: accuracy {row.value:.3f} on {where} ({row.n:,} answers)")
    _write(enrolment, folder)
    return enrolment.name


def _publish(name: str, work: Path, data: Path) -> None:
    """Publish the rows of an ecosystem, unless that removes something that is served."""
    by_hand = shlex.join(["python", "-m", "jobs", "publish", "--work", str(work), "--to", str(data)])
    if loss := publish.lost(work, data):
        raise AtlasError(
            f"The enrolment {name} is written, and its ecosystem not published. {loss}",
            "Move that work database away and enrol again without --work, which begins with what is served and reads "
            f"nothing twice; or take them out: {by_hand} --replace",
        )
    try:
        publish.publish_work(work, data)
    except AtlasError as error:
        raise AtlasError(
            f"The enrolment {name} is written, and its ecosystem not published. {error.problem}",
            f"{error.remedy}. Then run: {by_hand}",
        ) from error


def _write(enrolment: Enrolment, folder: Path) -> Enrolment:
    path = folder / f"{enrolment.name}.npz"
    saved = save_enrolment(enrolment, path)
    print(
        f"Written: {path.name}, {len(saved.sources)} sources, {len(saved.heads)} heads, "
        f"{path.stat().st_size / 1e6:.1f} MB, sha256 {saved.sha256[:12]}"
    )
    return saved
