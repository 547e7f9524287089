"""Malformed bytes for everything that reads a stranger's: `python -m benchmarks.fuzz`.

Each decoder gets its inputs in a process of its own, so that a crash, a hang or a leak is seen from
outside, with the input that did it. With atheris installed (`pip install -e '.[fuzz]'`) new inputs are
guided by coverage; without it they are mutations of valid messages only.

cli.py             the options
decoders.py        what is fed: decoders, who sends them bytes, how they refuse, valid messages
swarm_decoders.py  those that need hivemind
forms.py           messages as trees, and back with lies
mutation.py        a malformed message from valid ones
worker.py          feeds one decoder, in a process of its own
watch.py           starts that process, and notices when it dies, hangs or grows
run.py             from options to report
report.py          what was found, as JSON and as Markdown
"""
