"""``cb-trace query``: a named query, or SQL, on a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import SETTINGS, FilePath, assignments, console, format_option, say
from cb_trace.errors import CbTraceError
from cb_trace.reporters.result import Result

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


MODULE = "module"  # the variable that names one
_SUGGESTIONS = ("Candidate", "Did you mean")  # how DuckDB starts them


@click.command(
    name="query",
    epilog="Example: cb-trace query nanogpt.duckdb "
    '"SELECT deployment, path, cost_us FROM compare LIMIT 5"',
    context_settings=SETTINGS,
)
@click.argument("profile", type=FilePath)
@click.argument("query", required=False)
@click.option(
    "--set",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of the query; may be given again.",
)
@format_option
def command(
    *, profile: Path, query: str | None, variables: tuple[str, ...], output_format: str
) -> None:
    """Run a named query or SQL on a profile, read-only; without one, list the names.

    Text with a space in it is SQL, anything else a name.
    """
    from cb_trace.store import named_query, open_profile

    given = assignments(variables, "--set")
    with open_profile(profile) as connection:
        if query is None:
            result, label = _list(), "queries"
        elif any(c.isspace() for c in query.strip()):
            result, label = _run(connection, query, given), "sql"
        else:
            found = named_query(query.strip())
            _check_variables(given, found.variables, found.name)
            _check_module(connection, given)
            result, label = _run(connection, found.sql, given), found.name
            if not result.rows:
                say(f"note: no rows: {found.no_rows}")
    render(result, label, output_format)


def _list() -> Result:
    from cb_trace.store import named_queries

    return Result(
        ["name", "question", "variables"],
        [(q.name, q.question, ", ".join(q.variables)) for q in named_queries()],
    )


def _check_variables(given: dict[str, str], known: tuple[str, ...], name: str) -> None:
    for variable in given:
        if variable not in known:
            there = ", ".join(known) or "none"
            raise CbTraceError(f"{name} has no variable {variable!r}", hint=f"it has: {there}")


def _check_module(connection: DuckDBPyConnection, given: dict[str, str]) -> None:
    """Take a module as ``--module`` does elsewhere: no rows would look like an answer."""
    if MODULE in given:
        from cb_trace.reporters.modules import find_module

        paths = connection.execute("SELECT DISTINCT path FROM module").fetchall()
        given[MODULE] = find_module(given[MODULE], {path for (path,) in paths})


def _run(connection: DuckDBPyConnection, sql: str, variables: dict[str, str]) -> Result:
    import duckdb

    try:
        for name, value in variables.items():
            # The name was checked to be an identifier; SET takes no parameter for it.
            connection.execute(f"SET VARIABLE {name} = $value", {"value": _typed(name, value)})
        done = connection.execute(sql)
        columns = [column[0] for column in done.description or ()]
        return Result(columns, list(done.fetchall()) if columns else [])
    except duckdb.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        hint = next((line for line in lines[1:] if line.startswith(_SUGGESTIONS)), "")
        raise CbTraceError(f"SQL: {lines[0] if lines else error}", hint=hint) from error


def _typed(name: str, text: str) -> str | int | float:
    """A number where the text is one: variables are compared with typed columns.

    A module path is text also where it is ``0``.
    """
    for kind in () if name == MODULE else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def render(result: Result, label: str, output_format: str) -> None:
    """Print a result in one of the formats."""
    from cb_trace.reporters import rows, table

    if output_format == "table":
        table.print_result(result, console())
    elif output_format == "json":
        click.echo(rows.result_json(result, label), nl=False)
    elif output_format == "csv":
        click.echo(rows.result_csv(result), nl=False)
    else:
        click.echo(rows.result_markdown(result), nl=False)
