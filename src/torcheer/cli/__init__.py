"""The command ``torcheer``: one file per verb, on the public functions and nothing below them.

The parser is argparse with argcomplete. argparse is there, loads in 7 ms where click takes 33 and typer 53 (measured
here; `torcheer --help` is to take no more than 150), and every verb is one flat list of options, for which a framework
has nothing to add. argcomplete completes in bash, zsh and fish out of the same parser and is loaded only when a
shell asks; shtab writes scripts ahead of time, which go stale, and has none for fish.

A verb's module imports nothing slow at its top: all of them are imported to build the parser. Nor does a verb that
only reads files ever import torch.
"""
