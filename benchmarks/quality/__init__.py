"""What training in blocks costs in quality: `python -m benchmarks.quality`.

Several arms train on the same text with the same layers in all, batch, steps and seeds. Each block
is trained by the library's own `BlockTrainer` and scored by its own `score_blocks`, so that this
and `bt-node eval` measure the same thing: next-byte cross entropy with no target in the input.

cli.py       the options
run.py       from config to report
config.py    a TOML file -> what to train
plan.py      trainings, the jobs they consist of, and when each saves what; pure
texts.py     training text and the three texts for scores
training.py  one job: one block from its initial weights to its last step
scoring.py   cross entropies of a finished training
tasks.py     everything there is to do, in an order that respects what needs what
pool.py      a process for each task, so many at a time
progress.py  what the user sees meanwhile
measured.py  what is measured of one arm
figures.py   gaps and means; pure
results.py   finished jobs and their scores -> results.json
report.py    results -> Markdown
plots.py     results -> two pictures
machine.py   what it was measured on

    <jobs>/<arm>-<budget>-s<seed>-<hash>/      a training: all blocks of one arm, budget and seed
        block-<b>/state.safetensors            where a job that is not finished goes on
        block-<b>/step-<n>.safetensors         its weights at step n
        block-<b>/done.json                    a job that is finished, and what it took
        scores/<step>-<text>-<bytes>-<hash>.json
"""
