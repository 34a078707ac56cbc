"""Print docs/cli.md: every command's --help. Run: python docs/cli_reference.py > docs/cli.md"""

from __future__ import annotations

import click

from cb_trace.cli import COMMANDS, group

HEAD = """# Command line

Every command with its options, as `--help` prints it. This page is made by
`python docs/cli_reference.py > docs/cli.md`; a test keeps it equal to the code.

Results go to stdout, progress and notes to stderr. Exit status: 0 fine, 1 a threshold was crossed,
2 usage or unreadable input, 130 interrupted, 143 ended by SIGTERM. A user's mistake is one line
and, where there is one, a second with the next step. Colour only on a terminal, and not where
`NO_COLOR` is set.
"""


def help_text(command: click.Command, words: str) -> str:
    """What ``--help`` prints, at one width everywhere."""
    context = command.make_context(
        words, [], resilient_parsing=True, terminal_width=96, max_content_width=96
    )
    return command.get_help(context)


def reference() -> str:
    """The whole page."""
    parts = [HEAD, f"## cb-trace\n\n```text\n{help_text(group, 'cb-trace')}\n```\n"]
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        text = help_text(command, f"cb-trace {name}")
        parts.append(f"## cb-trace {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
