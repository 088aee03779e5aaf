"""examples:
  eval "$(torcheer completion bash)"                     in ~/.bashrc
  eval "$(torcheer completion zsh)"                      in ~/.zshrc, after compinit
  torcheer completion fish > ~/.config/fish/completions/torcheer.fish

Then TAB completes verbs, options, their choices, and files.
"""

from __future__ import annotations

import argparse

from torcheer.cli.answer import Answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(given: argparse.Namespace) -> Answer:
    from argcomplete.shell_integration import shellcode  # only this verb needs it

    return Answer(shellcode(["torcheer"], shell=given.shell))
