"""Pages of the documentation that are generated from the code when the site is built (hooks.py, called by mkdocs).

`sources` is the only module here that imports k8spilot. `pages` has every generated page by its path in the site.
"""
