"""The Typer app: it knows its commands by name and imports one when it is called; it owns exit codes and errors."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from pe_cli import process
from pe_cli.catalogue import CATALOGUE, FAMILIES
from pe_cli.errors import PeError, folded, one_line, option_name
from pe_cli.first import __version__
from pe_cli.process import DONE, INTERRUPTED, TROUBLE

# What the short help names first, after the arguments.
FIRST = ("", "len", "dim", "heads")
# Of numpy and scipy, by name: neither is imported for a message.
FROM_SOLVERS = ("LinAlgError", "ArpackError", "ArpackNoConvergence")


class Lazy(NamedTuple):
    """A command that is not imported yet: its line in the list, its heading there, and how to get it."""

    summary: str
    heading: str
    load: Callable[[], Callable[..., Any]]


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    lazy: Mapping[str, Lazy] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, args or ["--help"]))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name not in self.lazy:
            return None
        self.commands[cmd_name] = _typer_command(cmd_name, self.lazy[cmd_name].load())
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-"):
            name = folded(args[0])
            if name not in self.lazy:
                from pe_cli.commands import habits

                say = habits.no_such_encoding if ctx.info_name == "gen" else habits.no_such_command
                raise say(args[0], args[1:])
            args = [name, *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading in dict.fromkeys(command.heading for command in self.lazy.values()):
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name, command.summary)
                        for name, command in self.lazy.items()
                        if command.heading == heading
                    ]
                )


class SectionedCommand(TyperCommand):
    """A command that takes no option with an empty value, and whose help begins with what is needed.

    `-h` is that beginning: what the command does, an example, and its common options. `--help` goes on with the whole
    text and all options under their headings.
    """

    options: Sequence[Any] = ()  # of `pe_cli.commands.options.Option`
    common: Sequence[Any] = ()  # those of the short help

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "-h" in args[: args.index("--") if "--" in args else None]:
            print(self.get_short_help(ctx))
            ctx.exit()
        rest = list(super().parse_args(ctx, args))
        for parameter in self.get_params(ctx):
            given = ctx.params.get(parameter.name)
            values = given if isinstance(given, (list, tuple)) else (given,)
            if parameter.param_type_name == "option" and "" in values:
                option = max(parameter.opts, key=len)
                raise PeError(f"{option} '': a value is needed; or leave the option out")
        return rest

    def get_short_help(self, ctx: Any) -> str:
        """What `-h` prints."""
        formatter = ctx.make_formatter()
        self._begin(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"'{ctx.command_path} --help' explains it and lists every option.")
        return str(formatter.getvalue()).rstrip()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._begin(ctx, formatter)
        _, *more, _ = self._paragraphs()
        if more:
            formatter.write_paragraph()
            formatter.write_text("\n\n".join(more))
        self.format_options(ctx, formatter)

    def _paragraphs(self) -> list[str]:
        """What it does in a sentence, more about it, and the example."""
        return [part.strip("\n") for part in inspect.cleandoc(self.help or "").split("\n\n")]

    def _begin(self, ctx: Any, formatter: Any) -> None:
        first, *_, example = self._paragraphs()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{first}\n\n{example}")
        shown = [(one.typed, one.line) for one in self.common]
        if shown:
            with formatter.section("Common options"):
                formatter.write_dl(shown)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = getattr(parameter, "rich_help_panel", None) or "Help"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _typer_command(name: str, function: Any) -> Any:
    if isinstance(function, type) and issubclass(function, TyperGroup):
        return function(name=name, rich_markup_mode=None, help=function.__doc__)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(
        name,
        cls=SectionedCommand,
        context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    )(function)
    made: Any = typer.main.get_command(app)
    made.options = getattr(function, "options", ())
    common = [one for one in made.options if one.common or not one.flags]
    made.common = sorted(
        common, key=lambda one: FIRST.index(one.name) if one.name in FIRST else bool(one.flags) * 9
    )
    return made


def _function(target: str) -> Callable[[], Callable[..., Any]]:
    module, _, name = target.partition(":")
    return lambda: getattr(import_module(f"pe_cli.commands.{module}"), name)


def _encoding(name: str) -> Callable[[], Callable[..., Any]]:
    return lambda: import_module("pe_cli.commands.gen").gen_function(name)


class GenGroup(LazyGroup):
    """Make the table of an encoding.

    At a terminal it shows a summary and a picture; with -o, or into a pipe, it writes the table. `pe gen NAME -h` shows
    the common options of one encoding, `pe gen NAME --help` explains it. `pe gen --list` and `pe gen model --list` show
    the encodings and the presets of models, with --json for programs.

    \b
    Example:
      pe gen rope --len 4096 --dim 128 -o rope.safetensors
    """

    lazy = {  # noqa: RUF012
        **{
            name: Lazy(entry.summary, FAMILIES[entry.family], _encoding(name))
            for name, entry in CATALOGUE.items()
        },
        "model": Lazy(
            "the encoding of a model, from its config.json or .gguf",
            "Any model",
            _function("model:model_command"),
        ),
    }


class RootGroup(LazyGroup):
    """The commands of `pe`."""

    lazy = {  # noqa: RUF012
        "gen": Lazy("make the table of an encoding", "Commands", lambda: GenGroup),
        "inspect": Lazy(
            "say what is in a file, and which encoding a table is",
            "Commands",
            _function("inspect:inspect_command"),
        ),
        "extend": Lazy(
            "lengthen a learned table, alone or inside a checkpoint",
            "Commands",
            _function("extend:extend_command"),
        ),
        "diff": Lazy(
            "compare two tables and say why they differ", "Commands", _function("diff:diff_command")
        ),
    }


app = typer.Typer(cls=RootGroup, rich_markup_mode=None, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pe {__version__}")
        raise typer.Exit()


@app.callback(context_settings={"help_option_names": ["-h", "--help"]})
def root(
    version: Annotated[
        bool,
        typer.Option("-V", "--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Positional encodings: make, inspect, extend and compare them.

    \b
    Examples:
      pe gen rope --len 4096 --dim 128
      pe gen model llama-3.1 --len 8192 --layout onnx -o cache.safetensors
      pe inspect unknown.npy
      cat model.safetensors | pe extend - --len 1024 > longer.safetensors
      pe diff mine.npy theirs.safetensors:cos

    \b
    `pe help NAME` explains a command or an encoding, `pe gen --list` shows the
    encodings, `pe gen model --list` the models that are known by name.
    """


def main() -> NoReturn:
    """Run `pe`; every error becomes one line on stderr and an exit code."""
    process.prepare()
    try:
        process.tidy_up_first()
        code = run(sys.argv[1:])
        process.ignore_signals()
    except BaseException:
        # A signal between the lines of `run` that deal with one; only the first is heard, so it is the last exception.
        if not process.ended():
            raise
        code = _interrupted()
    process.leave(code)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        with process.one_command():
            if argv[:1] == ["gen"] and "--list" in argv:
                code = _list(argv)
            else:
                code = typer.main.get_command(app)(args=_help_of(argv), prog_name="pe", standalone_mode=False)
        sys.stdout.flush()
        return _interrupted() if code == INTERRUPTED else int(code or DONE)
    except BrokenPipeError:
        return _unread(argv)
    except SystemExit:
        # A signal; or else so do Typer and rich end when nobody reads the output any more.
        return process.ended() or _unread(argv)
    except Exception as error:
        if process.ended():
            return _interrupted()
        if os.environ.get("PE_DEBUG"):
            raise
        print(f"pe: {one_line(_sentence(error, argv))}", file=sys.stderr)
        return TROUBLE
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()


def _unread(argv: list[str]) -> int:
    """The exit code where whoever reads has seen enough; but a verdict that nobody saw is not "the same"."""
    return TROUBLE if argv[:1] == ["diff"] else DONE


def _interrupted() -> int:
    code = process.ended() or INTERRUPTED
    if code == INTERRUPTED:
        print("pe: interrupted", file=sys.stderr)
    return code


def _help_of(argv: list[str]) -> list[str]:
    """`pe help gen rope`, `pe help rope`, `pe --help gen rope` and `pe gen --help rope` as `--help` of these words."""
    typed = " ".join(argv[: 2 if argv[:1] == ["gen"] else 1])
    if typed not in ("help", "--help", "-h", "gen --help", "gen -h"):
        return argv
    words = [word for word in argv[typed == "help" :] if not word.startswith("-")]
    return [*(["gen"] if words[:1] and words[0].lower() in CATALOGUE else []), *words, "--help"]


def _list(argv: list[str]) -> int:
    """`pe gen --list` and `pe gen model --list`, also as JSON."""
    words = [word for word in argv[1:] if word not in ("--list", "--json")]
    if words not in ([], ["model"]):
        wrong = next(word for word in words if word != "model")
        raise PeError(f"{wrong}: `pe gen --list` and `pe gen model --list` take --json, and nothing else")
    if words:
        from pe_cli.models.read import preset_values

        rows: list[dict[str, Any]] = [
            {"name": name, "source": source, "summary": f"{_told(values)} ({source})", "values": values}
            for name, source, values in preset_values()
        ]
        what = "presets"
    else:
        rows = [
            {"name": name, "family": entry.family, "summary": entry.summary, "example": entry.example(name)}
            for name, entry in CATALOGUE.items()
        ]
        what = "encodings"
    if "--json" in argv:
        import json

        print(json.dumps({"schema": "pe.list/1", what: rows}, indent=1))
    else:
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            print(f"{row['name']:{width}}  {row['summary']}")
    return DONE


def _told(values: Mapping[str, Any]) -> str:
    """The values of a preset in a line; of a block of settings its type and factor."""
    said = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            kind, factor = value.get("rope_type", value.get("type")), value.get("factor")
            value = f"{kind or 'by layer type'}" + (f" x{factor:g}" if factor else "")
        elif isinstance(value, float):
            value = f"{value:g}"
        said.append(str(value) if name == "model_type" else f"{name} {value}")
    return ", ".join(said)


def _sentence(error: Exception, argv: list[str]) -> str:
    if isinstance(error, PeError):
        return error.spelled(option_name)
    if isinstance(error, typer.TyperException):
        usage = getattr(error, "ctx", None)
        message = error.format_message().rstrip(".")
        if usage:
            message = _meant(error, usage, argv) or message
        return f"{message}; see '{usage.command_path} --help'" if usage else message
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"out of memory ({str(error) or 'no room is left'}): ask for less at a time, by --positions or --shard"
    if type(error).__name__ in FROM_SOLVERS:
        return f"the numbers are too far apart for the eigenvalue solver ({error}): scale the weights, or --weights none"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply to be read"
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[error.start : error.end]!r} cannot be written in {error.encoding}: set a UTF-8 locale, or PYTHONUTF8=1"
    return f"unexpected {type(error).__name__}: {error}; PE_DEBUG=1 shows where, please report it"


def _meant(error: Exception, usage: Any, argv: list[str]) -> str | None:
    """What a line that Typer refuses was meant to say, where that is known."""
    from pe_cli.commands import habits

    known = {
        option: "" if getattr(parameter, "is_flag", False) else parameter.metavar or "VALUE"
        for parameter in usage.command.get_params(usage)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    if isinstance(usage.command, LazyGroup):
        sentence = habits.options_first(argv, RootGroup.lazy)
        if sentence:
            return sentence
    if hasattr(error, "possibilities"):
        declared = getattr(usage.command, "options", ())
        choices = {one.flag: one.choices() for one in declared if one.choices}
        takes = any(not one.flags for one in declared)
        typed = getattr(error, "option_name", "")
        return habits.no_such_option(typed, known, usage.info_name, argv, choices, has_argument=takes)
    said = getattr(error, "message", "") or ""
    extra = re.search(r"unexpected extra argument\S* \((.*)\)", said)
    if extra:
        words = extra[1].split()
        if not words:
            return "an empty word is given where nothing is taken: is a variable of the shell empty?"
        # Words that have spaces in them are not told apart in what Typer says.
        return None if Counter(words) - Counter(argv) else habits.extra_words(words, known, argv)
    option = max(getattr(getattr(error, "param", None), "opts", None) or ("",), key=len)
    if type(error).__name__ == "MissingParameter":
        parameter: Any = getattr(error, "param", None)
        needed = parameter.param_type_name == "option"
        return habits.missing(option if needed else parameter.metavar or option, usage.command_path)
    wrong = re.match(r"'(.*)' is not a valid (int|float)", said)
    return habits.number(option, wrong[1], whole=wrong[2] == "int") if wrong and option else None


if __name__ == "__main__":
    main()
