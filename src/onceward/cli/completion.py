"""
`onceward completion`: files that let bash, zsh and fish complete commands and options, made from the command table.

They are static: pressing the tab key starts no Python. Make them anew after an upgrade.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command, CommandParser, build_parser
from onceward.cli.output import print_json, print_text


class Option(NamedTuple):
    """An option of a command."""

    name: str
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool


class Words(NamedTuple):
    """What may follow some words of a command line."""

    after: str
    """The words before, such as `records list`; empty: nothing but the program."""
    commands: tuple[tuple[str, str], ...]
    """Each with its summary."""
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    """What an argument without a name may be."""


_FILES = ("FILE", "PATH", "FOLDER")


def words_of(parser: CommandParser, after: str = "") -> list[Words]:
    """What may follow, for every command."""
    commands: dict[str, CommandParser] = {}
    summaries: dict[str, str] = {}
    options: list[Option] = []
    arguments: tuple[str, ...] = ()
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            commands = dict(action.choices)
            summaries = {one.dest: (one.help or "").replace("%%", "%") for one in action._choices_actions}
        elif action.option_strings:
            text = (action.help or "").replace("%%", "%")
            is_file = str(action.metavar) in _FILES
            takes_value = action.nargs != 0
            options += [
                Option(name, text, takes_value, choices, is_file)
                for name in action.option_strings
                if name.startswith("--")
            ]
        else:
            arguments += choices
    here = Words(after, tuple((name, summaries.get(name, "")) for name in commands), tuple(options), arguments)
    return [here, *(one for name, inner in commands.items() for one in words_of(inner, f"{after} {name}".strip()))]


def bash_script(words: list[Words]) -> str:
    """The file for bash."""
    cases = []
    for one in words:
        names = " ".join((*(name for name, _ in one.commands), *one.arguments))
        options = " ".join(option.name for option in one.options)
        cases.append(f'        "{one.after}") words="{names}"; options="{options}" ;;')
    values = []
    for key, (choices, is_file) in _values(words).items():
        done = (
            "compopt -o default; return" if is_file else f'COMPREPLY=($(compgen -W "{choices}" -- "$current")); return'
        )
        values.append(f'        "{key}") {done} ;;')
    return _BASH.replace("@CASES@", "\n".join(cases)).replace("@VALUES@", "\n".join(values))


def _values(words: list[Words]) -> dict[str, tuple[str, bool]]:
    """What may follow an option that takes a value: choices, a file, or anything."""
    return {
        f"{one.after} {option.name}".strip(): (" ".join(option.choices), option.is_file)
        for one in words
        for option in one.options
        if option.takes_value
    }


_BASH = """\
# bash completion for onceward. To use it, keep it as ~/.local/share/bash-completion/completions/onceward
_onceward() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" options="" word
    COMPREPLY=()
    _onceward_words ""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case " $words " in *" $word "*) path="${path:+$path }$word"; _onceward_words "$path" ;; esac
    done
    case "${path:+$path }$previous" in
@VALUES@
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
}
_onceward_words() {
    case "$1" in
@CASES@
    esac
}
complete -F _onceward onceward
"""


def zsh_script(words: list[Words]) -> str:
    """The file for zsh."""
    cases = []
    for one in words:
        named = " ".join(_zsh(f"{_colons(name)}:{_colons(summary)}") for name, summary in one.commands)
        named += "".join(f" {_zsh(_colons(name))}" for name in one.arguments)
        options = " ".join(_zsh(f"{_colons(option.name)}:{_colons(option.help)}") for option in one.options)
        cases.append(f"        {_zsh(one.after)}) words_here=({named}); options_here=({options}) ;;")
    values = []
    for key, (choices, is_file) in _values(words).items():
        done = "_files; return" if is_file else f"compadd -- {choices}; return" if choices else "return"
        values.append(f"        {_zsh(key)}) {done} ;;")
    return _ZSH.replace("@CASES@", "\n".join(cases)).replace("@VALUES@", "\n".join(values))


def _zsh(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _colons(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


_ZSH = """\
#compdef onceward
# zsh completion for onceward. To use it: onceward completion zsh > a file _onceward in a folder of your $fpath
_onceward_here() {
    case "$1" in
@CASES@
    esac
}
_onceward() {
    local current="$words[CURRENT]" previous="$words[CURRENT-1]" here="" word
    local -a words_here options_here
    _onceward_here ""
    for word in "${(@)words[2,CURRENT-1]}"; do
        if (( ${words_here[(I)$word(:*|)]} )); then here="${here:+$here }$word"; _onceward_here "$here"; fi
    done
    case "${here:+$here }$previous" in
@VALUES@
    esac
    if [[ "$current" == -* ]]; then _describe option options_here; else _describe command words_here; fi
}
if [[ "$funcstack[1]" == _onceward ]]; then _onceward "$@"; else compdef _onceward onceward; fi
"""


def fish_script(words: list[Words]) -> str:
    """The file for fish."""
    lines = [_FISH]
    for one in words:
        condition = f"-n '__onceward_at \"{one.after}\"'"
        for name, summary in (*one.commands, *((choice, "") for choice in one.arguments)):
            lines.append(f"complete -c onceward -f {condition} -a {name} -d {_fish(summary)}")
        for option in one.options:
            value = f" -x -a {_fish(' '.join(option.choices))}" if option.choices else " -r" if option.is_file else ""
            value = value or (" -x" if option.takes_value else "")
            lines.append(f"complete -c onceward {condition} -l {option.name[2:]}{value} -d {_fish(option.help)}")
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FISH = """\
# fish completion for onceward. To use it: onceward completion fish > ~/.config/fish/completions/onceward.fish
function __onceward_at
    set -l typed (commandline -opc)
    set -e typed[1]
    set -l path
    for word in $typed
        string match -q -- '-*' $word; or set path $path $word
    end
    test "$path" = "$argv[1]"
end"""

SCRIPTS: dict[str, Callable[[list[Words]], str]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def _completion(args: argparse.Namespace) -> int:
    """Print the file for a shell."""
    script = SCRIPTS[args.shell](words_of(build_parser()))
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        print_text(script.rstrip("\n"))
    return exit_codes.FINE


COMMANDS = (
    Command(
        name="completion",
        summary="print the completion script for bash, zsh or fish",
        run=_completion,
        arguments=(Argument("shell", "your shell", choices=tuple(SCRIPTS), metavar="SHELL"),),
        examples=("onceward completion bash", "onceward completion zsh"),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
        more="bash: put it into ~/.local/share/bash-completion/completions/onceward. zsh: as _onceward into a "
        "folder of $fpath. fish: into ~/.config/fish/completions/onceward.fish. For this session only: "
        'eval "$(onceward completion bash)". Print it again after an upgrade.',
    ),
)
