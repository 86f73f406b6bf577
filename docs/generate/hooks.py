"""Hooks of MkDocs: they add the pages of evidence to the site, and link tables to these pages."""

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generate import evidence
from docs.generate.pages import COMMITTED, SITE_ONLY


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that only the site has."""
    for path, make in SITE_ONLY.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Show a link in place of the tests of a row."""
    path = page.file.src_uri
    return markdown if path in COMMITTED or path in SITE_ONLY else evidence.with_links(markdown, path)
