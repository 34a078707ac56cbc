"""``cb-trace query``: a named query, or SQL, on a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cb_trace.commands.options import FilePath, assignments, console, format_option
from cb_trace.errors import CbTraceError
from cb_trace.reporters.rows import Result

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_SUGGESTIONS = ("Candidate", "Did you mean")  # how DuckDB starts them


@click.command(
    name="query",
    epilog='Example: cb-trace query nanogpt.duckdb "SELECT path, cost_us FROM compare LIMIT 5"',
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
            result, label = _run(connection, found.sql, given), found.name
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


def _run(connection: DuckDBPyConnection, sql: str, variables: dict[str, str]) -> Result:
    import duckdb

    try:
        for name, value in variables.items():
            # The name was checked to be an identifier; SET takes no parameter for it.
            connection.execute(f"SET VARIABLE {name} = $value", {"value": _typed(value)})
        done = connection.execute(sql)
        columns = [column[0] for column in done.description or ()]
        return Result(columns, list(done.fetchall()) if columns else [])
    except duckdb.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        hint = next((line for line in lines[1:] if line.startswith(_SUGGESTIONS)), "")
        raise CbTraceError(f"SQL: {lines[0] if lines else error}", hint=hint) from error


def _typed(text: str) -> str | int | float:
    """A number where the text is one: variables are compared with typed columns."""
    for kind in (int, float):
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
