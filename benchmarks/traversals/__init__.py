"""What several bytes per traversal cost in quality: `python -m benchmarks.traversals`.

A model trained in blocks by `benchmarks.quality` continues held-out text through the library's own
chain, one byte per traversal (`ar`) and several (`sweep`). A model trained end to end by itself
says how likely it finds each continuation. Outputs are kept in `<work>/traversals/`.

cli.py     the options
run.py     from options to report
models.py  the two models: found, loaded, as a chain and as a judge
report.py  what is measured, as JSON and as Markdown
"""
