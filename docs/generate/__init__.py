"""Pages of the documentation that are generated from the code.

`make docs` calls `python -m docs.generate`, which writes them into docs/, so that a Git host shows them and their links
work there. Pages of evidence are in the site only: hooks.py adds them when mkdocs builds it. `sources` is the only
module here that imports k8spilot. `pages` has every generated page by its path in the site.
"""
