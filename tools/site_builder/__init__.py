"""
The site of the documentation: `make docs`.

    navigation.py     what is in the navigation, read from docs/index.md: there is no other list of the pages
    page_links.py     links and anchors of Markdown pages, as a code host and the site understand them
    source_names.py   public names of the packages and where each is defined, read from the source; nothing is imported
    reference.py      a page for each public package: signatures and docstrings
    staging.py        puts together what the generator reads: pages, reference, sources that pages link to, settings
    outside.py        addresses of other hosts that a built page would load from

`tools/docs_site.py` is the command. Everything but the generator (Zensical) needs Python only, so `make test` can hold
it without the environment of `make docs`.
"""
