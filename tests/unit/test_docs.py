"""What the documents say to type exists: commands, options, variables, targets, files and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from markdown.extensions.toc import slugify

from bootstrap.cli import app as bootstrap_app
from node.cli import app as node_app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {
    "bt-node": typer.main.get_command(node_app),
    "bt-bootstrap": typer.main.get_command(bootstrap_app),
}
EVERYWHERE = {"--help", "-h", "--install-completion", "--show-completion"}
OF_OTHERS = {"--cov", "--gpus", "--init", "--build-arg"}
"""Options of pytest and docker that stand alone."""
SPAN = re.compile(r"`([^`\n]+)`")


def without_code(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$|^ {4,}.*$", "", text, flags=re.MULTILINE | re.DOTALL)


def code_lines(text: str) -> Iterator[str]:
    """Lines of all blocks of code, with continued lines joined."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4,}(.*)$", rest, flags=re.MULTILINE)
    for block in [*fenced, "\n".join(indented)]:
        yield from block.replace("\\\n", " ").splitlines()


def spans(text: str) -> list[str]:
    """Everything between backquotes in running text."""
    return SPAN.findall(without_code(text))


def calls(line: str) -> Iterator[tuple[str, list[str]]]:
    """The programs of ours that a line runs, each with its arguments."""
    for part in re.split(r"&&|\||;", line.removeprefix("$ ").split(" #")[0]):
        try:
            words = shlex.split(part)
        except ValueError:
            continue  # a sentence with an apostrophe
        while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] == "sudo"):
            words = words[1:]
        if words and words[0] in PROGRAMS:
            yield words[0], words[1:]


def find_command(program: str, words: list[str]) -> tuple[object, list[str]]:
    """The command that some words name, and the words after its name."""
    command = PROGRAMS[program]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options(command: object) -> set[str]:
    """What a command understands, and if it is a group also what its commands do."""
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    below = (options(child) for child in getattr(command, "commands", {}).values())
    return own.union(*below)


def on(pages: list[Path], found) -> list:
    """What a function finds on the pages, each under the name of its page."""
    return [
        pytest.param(each, id=f"{page.relative_to(ROOT)}: {str(each)[:50]}")
        for page in pages
        for each in dict.fromkeys(found(page.read_text(encoding="utf-8")))
    ]


def whole_calls(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Programs with all their arguments, as people copy them."""
    found = [call for line in code_lines(text) for call in calls(line)]
    return [(name, tuple(words)) for name, words in found if not {"[OPTIONS]"} & set(words)]


@pytest.mark.parametrize("call", on(PAGES, whole_calls))
def test_a_line_to_copy_is_understood(call: tuple[str, tuple[str, ...]]) -> None:
    """The program parses it: command, options, and what they need."""
    program, (*words,) = call
    command, rest = find_command(program, words)
    assert not rest or rest[0].startswith("-") or not getattr(command, "commands", {}), rest
    if not EVERYWHERE & set(rest):
        command.make_context(program, list(rest))


def mentions(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Programs with some of their arguments, as sentences name them."""
    return [(name, tuple(words)) for span in spans(text) for name, words in calls(span)]


@pytest.mark.parametrize("call", on(PAGES, mentions))
def test_a_command_in_a_sentence_exists(call: tuple[str, tuple[str, ...]]) -> None:
    """And it has the options that stand with it."""
    program, (*words,) = call
    command, rest = find_command(program, words)
    named = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert set() == named - options(command) - EVERYWHERE
    if getattr(command, "commands", {}) and rest:
        assert rest[0].startswith(("-", "...", "COMMAND")), f"there is no command {rest[0]}"


def test_an_option_in_a_sentence_exists() -> None:
    """One that was removed or renamed does not linger."""
    known = options(PROGRAMS["bt-node"]) | options(PROGRAMS["bt-bootstrap"]) | EVERYWHERE
    named = {
        (page.name, span.split()[0].partition("=")[0])
        for page in PAGES
        if "results" not in page.parts and page.name not in {"contributing.md", "lab-log.md"}
        for span in spans(page.read_text(encoding="utf-8"))
        if span.startswith("--")
    }
    assert set() == {(page, name) for page, name in named if name not in known | OF_OTHERS}


def test_environment_variables_exist() -> None:
    """Those that start as ours do are read by a command."""

    def variables(command) -> set[str]:
        own = {each.envvar for each in command.params if each.param_type_name == "option"}
        return own.union(*map(variables, getattr(command, "commands", {}).values()))

    read = variables(PROGRAMS["bt-node"]) | variables(PROGRAMS["bt-bootstrap"])
    for_people = [page for page in PAGES if "design" not in page.parts]
    files = [*for_people, *(path for path in (ROOT / "packaging").rglob("*") if path.is_file())]
    named = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"\bBT_(?:NODE|BOOTSTRAP)_[A-Z_]+\b", text))
    assert set() == named - read


def test_make_targets_and_modules_exist() -> None:
    """Of `make` and of `python -m`, wherever a document names them."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([.a-z][\w.-]*):", makefile, flags=re.MULTILINE))
    wanted, modules = set(), set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in [*code_lines(text), *spans(text)]:
            wanted |= set(re.findall(r"(?:^|&& )make (?:[A-Z]+=\S+ )?([.a-z][\w.-]*)", line))
            modules |= set(
                re.findall(r"python -m ((?:benchmarks|node|bootstrap|tools)[\w.]*)", line)
            )
    paths = [ROOT.joinpath(*module.split(".")) for module in modules - {"benchmarks.NAME"}]
    assert set() == wanted - targets
    assert [] == [
        str(path) for path in paths if not (path.is_dir() or path.with_suffix(".py").is_file())
    ]


def test_files_of_the_project_exist() -> None:
    """A path in backquotes that begins with a folder of this project leads somewhere."""
    folders = "bt_p2p|node|bootstrap|benchmarks|tests|tools|packaging|docs"
    path = re.compile(rf"^(?:{folders})/[\w./*-]*$")
    named = {
        (page.name, span)
        for page in PAGES
        if "results" not in page.parts and page.name not in {"lab-log.md", "CHANGELOG.md"}
        for span in spans(page.read_text(encoding="utf-8"))
        if path.match(span)
    }

    def exists(span: str) -> bool:
        start = span.rstrip("/")
        return bool([*ROOT.glob(start), *ROOT.glob(f"{start}.py")])

    assert set() == {item for item in named if not exists(item[1])}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_of_pages_outside_of_the_site_lead_somewhere(name: str) -> None:
    """mkdocs checks the others, in `make docs`."""
    text = without_code((ROOT / name).read_text(encoding="utf-8"))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        page = ROOT / target if target else ROOT / name
        headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if anchor and anchor not in {slugify(heading, "-") for heading in headings}:
            broken.append(link)
    assert [] == broken
