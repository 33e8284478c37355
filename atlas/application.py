"""The atlas as a Dash application: pages, cache, errors in sentences, and the first bytes that the browser gets."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import dash
import pandas as pd
from dash import Dash, html
from dash.development.base_component import Component
from flask import Flask, Response, request
from flask_caching import Cache
from flask_compress import Compress
from werkzeug.middleware.proxy_fix import ProxyFix

from atlas import api, bundles, frame, logs, shell
from atlas.api import access, answers
from atlas.api.access import behind_proxy
from atlas.api.problems import RefusedError, reference
from atlas.data import QueryCache, install
from atlas.figures.map import camera_layout
from atlas.markup import join_markup
from atlas.pages import (
    attribute,
    attribution,
    brief,
    compare,
    family,
    map,
    methods,
    neighbourhoods,
    relationships,
    source,
    watch,
)
from atlas.theme import style_variables
from backend.enrolment.catalogue import WORDS
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.service.service import Service
from backend.shipped import shipped
from backend.store.database import default_data_folder

PAGES = tuple(
    module.PAGE
    for module in (
        map, neighbourhoods, attribution, compare, relationships, attribute, watch, brief, methods, source,
        family,
    )
)  # fmt: skip
ANYTHING = "/<path:path>"  # where Dash answers whatever nobody else does
FAILED = "The server could not answer this. Reload the page; the server's log says more."
WITHOUT_FIGURES = ("attribute", "methods")  # pages without a figure; others fetch plotly.js

# Runs before anything is painted, so that no page flashes in the wrong theme or width. Figures wait for plotly.js,
# which Dash would ask for last.
_FIRST = """
(function(){var u=new URL(location.href),s=function(k){try{return localStorage.getItem(k)}catch(e){return null}};
var t=u.searchParams.get("theme");
if(t!=="dark"&&t!=="light"){t=s("atlas-theme")||(matchMedia("(prefers-color-scheme: light)").matches?"light":"dark");
u.searchParams.set("theme",t);history.replaceState(history.state,"",u)}
document.documentElement.dataset.theme=t;document.documentElement.dataset.page=location.pathname;document.documentElement.dataset.mantineColorScheme=t;
if(s("atlas-rail"))document.documentElement.dataset.rail=s("atlas-rail");
window.atlasPages=%s;window.atlasCamera=%s;window.atlasWords=%s;
if(%s.indexOf(location.pathname)<0){var l=document.createElement("link");l.rel="preload";l.as="script";l.href=%s;
document.head.appendChild(l)}})();
"""


def create_application(data: Path | None = None, cache: Path | None = None) -> Dash:
    """Make the application; raises AtlasError if the cache folder cannot be written.

    data : by default ``ATLAS_DATA`` or ``data/`` next to the code. cache : by default inside the cache folder.
    """
    # Text in pyarrow's arrays releases the interpreter lock a thousand times a page, and waits to get it back while
    # the proxy loads in the background.
    pd.set_option("mode.string_storage", "python")
    logging.getLogger("dash.mcp").setLevel(logging.WARNING)  # its first line would come before those of the atlas
    app = Dash(
        "atlas",
        title="Provenance Atlas",
        update_title=None,  # type: ignore[arg-type]
        use_pages=True,
        pages_folder="",
        assets_folder=str(shipped("assets")),
        assets_path_ignore=["plotly"],
        suppress_callback_exceptions=True,
        on_error=_tell,
        add_log_handler=False,
        serve_locally=True,
        include_pages_meta=False,
        enable_mcp=True,
        mcp_path=access.ASSISTANTS,
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "description", "content": "Which language model wrote these traces: a map, and measurements"},
        ],
    )
    if behind_proxy():
        app.server.wsgi_app = ProxyFix(app.server.wsgi_app, x_host=1)
    app.server.config["MAX_CONTENT_LENGTH"] = access.PAGE_FILE
    app.server.config["COMPRESS_ALGORITHM"] = ["br", "gzip"]
    app.server.config["COMPRESS_BR_LEVEL"] = 5  # a tenth smaller than the usual 4, and no slower
    tables = cache or cache_folder() / "web-tables"
    config = {"CACHE_TYPE": "atlas.data.TableCache", "CACHE_DIR": str(tables), "CACHE_THRESHOLD": 5_000}
    try:
        cached = Cache(app.server, config=config)
    except OSError as error:
        raise AtlasError(
            f"The cache folder {tables} cannot be written ({error.strerror})",
            "Set ATLAS_CACHE to a folder that you may write to",
        ) from error
    logs.install(app.server, proxied=behind_proxy())
    questions = QueryCache(data or default_data_folder(), cached)
    install(app.server, questions)
    live = None if cache is None else cache.with_name(f"{cache.name}-live")
    service = Service(questions.folder, live)
    service.warm()
    api.install(app.server, questions, service)
    answers.install(app, questions)
    Compress(app.server)
    bundles.install(app, bundles.Packed(cache_folder() / "web-bundles") if cache is None else None)
    for order, page in enumerate(PAGES):
        dash.register_page(
            f"atlas.pages.{page.name}",
            **({"path_template": page.path} if "<" in page.path else {"path": page.path}),
            title=f"{page.title} · Provenance Atlas",
            name=page.title,
            layout=_guarded(page.layout, questions),
            order=order,
        )
        page.register(app)
    dash.register_page("not_found_404", title="No such page · Provenance Atlas", layout=shell.nowhere)
    frame.register(app, PAGES)
    app.layout = lambda: frame.frame(questions, PAGES, service.damaged(), sealed=answers.is_sealed(questions))
    _only_own_paths(app)
    paths = {f"nav-{page.name}": page.path for page in PAGES if page.icon}
    bare = [page.path for page in PAGES if page.name in WITHOUT_FIGURES]
    parts = (paths, camera_layout(()), WORDS, bare, bundles.PLOTLY)
    first = _FIRST % tuple(json.dumps(part) for part in parts)
    app.index_string = _index(first)
    _only_own_scripts(app, first)
    return app


def _only_own_scripts(app: Dash, first: str) -> None:
    """Let pages run the scripts that are served here, and those inside them that were written here."""
    server: Flask = app.server
    own = f"'sha256-{base64.b64encode(hashlib.sha256(first.encode()).digest()).decode()}'"

    @server.after_request
    def tell(response: Response) -> Response:
        if response.mimetype == "text/html":
            response.headers.setdefault("Content-Security-Policy", access.policy([*app.csp_hashes(), own]))
        return response


def _only_own_paths(app: Dash) -> None:
    """Answer 404 for what is neither a page nor a file of the pages; Dash would send its page, or fail."""
    server: Flask = app.server
    pages = re.compile("|".join(re.sub("<.*?>", "(.+)", page.path) for page in PAGES))

    @server.before_request
    def only_own_files() -> None:
        if request.path.startswith(bundles.SUITES) and not bundles.is_registered(app, request.path):
            raise RefusedError(HTTPStatus.NOT_FOUND, "There is no such file.")

    @server.after_request
    def nowhere(response: Response) -> Response:
        if request.endpoint == ANYTHING and response.status_code == 200 and not pages.fullmatch(request.path):
            response.status_code = HTTPStatus.NOT_FOUND
        return response


def _guarded(layout: Callable[..., Component], cache: QueryCache) -> Callable[..., Component]:
    """A layout that shows a sentence where it would fail, or the token's field to somebody who may see nothing."""

    @functools.wraps(layout)
    def safe(**query: str) -> Component:
        try:
            if answers.is_sealed(cache):
                answers.refuse()
                return html.Div(attribute.token_field(), className="column")
            joined: Component = join_markup(layout(**query))
            return joined
        except AtlasError as error:
            answers.refuse()
            return shell.no_generation(error)
        except Exception as error:
            answers.refuse()
            logs.log_failure("A page could not be laid out", error)
            return html.Div(html.P(f"{FAILED} {reference()}."), className="column", role="alert")

    return safe


def _index(first: str) -> str:
    fonts = "".join(
        f'<link rel="preload" href="/assets/fonts/ibm-plex-sans-latin-{weight}-normal.woff2" as="font" '
        'type="font/woff2" crossorigin>'
        for weight in (400, 600)
    )
    return (
        '<!DOCTYPE html><html lang="en" data-theme="dark"><head>{%metas%}<title>{%title%}</title>{%favicon%}'
        f"<style>{style_variables()}</style><script>{first}</script>{fonts}{{%css%}}</head>"
        "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
    )


def _tell(error: Exception) -> Any:
    """Say in the page what went wrong in a callback; the log has the rest."""
    answers.refuse()
    if isinstance(error, AtlasError):
        sentence = str(error)
    else:
        logs.log_failure("A callback failed", error)
        sentence = f"{FAILED} {reference()}."
    dash.set_props("trouble", {"children": sentence})
    return dash.no_update
