"""Static completions for bash, zsh and fish, written from the commands themselves.

`python tools/make_completions.py` writes `completions/pe.bash`, `_pe` and `pe.fish`. They are files rather than a call
of `pe` on every TAB, which would cost the start of Python each time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

sys.path.insert(0, str(Path(__file__).parent.parent))  # this repository and not a package that is installed

from pe_cli.cli import app

FOLDER = Path(__file__).parent.parent / "completions"

FILE_METAVARS = frozenset({"FILE", "SOURCE", "GRAPH", "FOLDER", "KEY=FILE", "CONFIG"})


class Option(NamedTuple):
    """One option: its spellings, its line of help, and what may follow it."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    takes_file: bool


class Command(NamedTuple):
    """One command by its words after `pe`, with its subcommands or its options."""

    words: tuple[str, ...]
    help: str
    subcommands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    takes_file: bool


def commands() -> list[Command]:
    """Every command of `pe`, the root first."""
    return list(_walk(typer.main.get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[Command]:
    context = command.context_class(command, info_name="pe")
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    children = tuple((name, command.lazy[name].summary) for name in names)
    options = tuple(_option(p, context) for p in command.get_params(context) if p.param_type_name == "option")
    takes_file = any(p.param_type_name == "argument" for p in command.params)
    yield Command(words, command.get_short_help_str(80), children, options, takes_file)
    for name in names:
        yield from _walk(command.get_command(context, name), (*words, name))


def _option(parameter: Any, context: Any) -> Option:
    takes_value = not parameter.is_flag and not parameter.count
    items = parameter.shell_complete(context, "") if takes_value else []
    choices = tuple(item.value for item in items if item.type == "plain")
    flags = (*parameter.opts, *parameter.secondary_opts)
    line = (parameter.help or "").split(". ")[0].strip().rstrip(".")
    return Option(flags, line, takes_value, choices, (parameter.metavar or "") in FILE_METAVARS)


def bash(known: list[Command]) -> str:
    """A completion function for bash."""
    cases = []
    for command in known:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        words = " ".join(name for name, _ in command.subcommands)
        values = [
            f"                {'|'.join(option.flags)}) {_bash_value(option)} ;;\n"
            for option in command.options
            if option.takes_value
        ]
        case = "".join(values)
        cases.append(
            f'        "{" ".join(command.words)}")\n'
            f'            case "$previous" in\n{case}            esac\n'
            f'            words="{words}"; flags="{flags}"; files={int(command.takes_file)} ;;\n'
        )
    subcommands = "|".join(
        " ".join(command.words) for command in known if command.subcommands and command.words
    )
    return f"""# bash completion for pe; made by tools/make_completions.py
_pe() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" words="" flags="" files=0 i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path" in
            ""|{subcommands})
                [[ "${{COMP_WORDS[i]}}" != -* ]] && path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    if [[ "$current" == "=" ]]; then  # readline cuts --layout=half into three words
        current=""
    elif [[ "$previous" == "=" ]]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    COMPREPLY=()
    case "$path" in
{"".join(cases)}    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$current"))
    elif [[ -n "$words" ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    elif ((files)); then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -F _pe pe
"""


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return'
    if option.takes_file:
        return 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return'
    return "return"


def zsh(known: list[Command]) -> str:
    """A completion function for zsh."""
    functions = []
    for command in known:
        name = "_".join(("_pe", *command.words)).replace("-", "_")
        lines = [f"        {_zsh_option(option)}" for option in command.options]
        if command.subcommands:
            lines += ["        '1: :->command'", "        '*:: :->rest'"]
        elif command.takes_file:
            lines.append("        '*:file:_files'")
        body = " \\\n".join(["    _arguments -s -S", *lines])
        if command.subcommands:
            described = "\n".join(f"        {_quote(f'{n}:{h}')}" for n, h in command.subcommands)
            calls = "\n".join(
                f"            {n}) {name}_{n.replace('-', '_')} ;;" for n, _ in command.subcommands
            )
            body = (
                f"    local context state state_descr line\n    typeset -A opt_args\n    local -a known\n"
                f"    known=(\n{described}\n    )\n{body}\n"
                f'    case "$state" in\n        command) _describe -t commands command known ;;\n'
                f'        rest) case "$words[1]" in\n{calls}\n        esac ;;\n    esac'
            )
        functions.append(f"{name}() {{\n{body}\n}}\n")
    loaded = 'if [[ "$funcstack[1]" == "_pe" ]]; then\n    _pe "$@"\nelse\n    compdef _pe pe\nfi\n'
    return "#compdef pe\n# zsh completion for pe; made by tools/make_completions.py\n" + "\n".join(
        [*functions, loaded]
    )


def _zsh_option(option: Option) -> str:
    about = option.help.replace("[", "(").replace("]", ")").replace(":", ";")
    value = ""
    if option.takes_value:
        value = ":value:" + (
            f"({' '.join(option.choices)})" if option.choices else "_files" if option.takes_file else ""
        )
    exclusive = f"({' '.join(option.flags)})"
    return " ".join(
        _quote(f"{exclusive}{flag}{'=' if value and flag.startswith('--') else ''}[{about}]{value}")
        for flag in option.flags
    )


def fish(known: list[Command]) -> str:
    """Completions for fish."""
    lines = ["# fish completion for pe; made by tools/make_completions.py", "complete -c pe -f"]
    for command in known:
        here = _fish_condition(command)
        for name, about in command.subcommands:
            lines.append(f"complete -c pe -n {here} -a {name} -d {_quote(about)}")
        if command.takes_file:
            lines.append(f"complete -c pe -n {here} -F")
        for option in command.options:
            parts = [f"complete -c pe -n {here}"]
            parts += [
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
            ]
            if option.choices:  # in a line of their own, else each comes with the description of the option
                lines.append(" ".join([*parts, "-x", f"-a {_quote(' '.join(option.choices))}"]))
            if option.takes_value:
                parts.append("-r -F" if option.takes_file and not option.choices else "-x")
            lines.append(" ".join([*parts, f"-d {_quote(option.help)}"]))
    return "\n".join(lines) + "\n"


def _fish_condition(command: Command) -> str:
    depth = len(command.words)
    tests = [f"test (count (__pe_words)) -{'eq' if command.subcommands else 'ge'} {depth + 1}"]
    tests += [f"test (__pe_words)[{index + 2}] = {word}" for index, word in enumerate(command.words)]
    return _quote("; and ".join(tests))


FISH_WORDS = """function __pe_words
    for word in (commandline -opc)
        string match -qr '^-' -- $word; or echo $word
    end
end
"""


def _quote(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


def files() -> dict[str, str]:
    """Each completion file by name, with its text."""
    known = commands()
    return {"pe.bash": bash(known), "_pe": zsh(known), "pe.fish": FISH_WORDS + fish(known)}


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
