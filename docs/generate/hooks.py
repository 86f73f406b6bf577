"""What mkdocs calls when it builds the site: adds the generated pages, and links tables to their evidence."""

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generate import evidence
from docs.generate.pages import GENERATED


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Show a link in the place of the tests of a row."""
    path = page.file.src_uri
    return markdown if path in GENERATED else evidence.with_links(markdown, path)
