"""`holdfast failures patch`, `hold`, `release` and `erase`: what is done to a whole selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.cli.desk.asking import Sender, acting_options
from holdfast.cli.desk.editing import PATH, change_of, change_options, print_differences, print_findings
from holdfast.cli.desk.progress import result_of
from holdfast.cli.desk.selecting import selection_options
from holdfast.cli.options import json_option
from holdfast.cli.output import print_json, print_table
from holdfast.errors import FailedPrecondition
from holdfast.model.exact_json import plain

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
preview_option = click.option("--preview", is_flag=True, help="Only tell what would be done.")


# Patch.


@click.command()
@selection_options
@change_options
@preview_option
@yes_option
@click.option("--comment", default="", help="Why, for those who look at it later.")
@json_option
@acting_options
def patch(
    desk: Sender, selection: Mapping[str, Any], preview: bool, yes: bool, comment: str, as_json: bool, **change: Any
) -> None:
    """Edit all failed messages that the options select: a preview first, then the very same."""
    body = {"selection": selection, **change_of(**change)}
    exact = result_of(desk.lines("POST", f"{PATH}:patch", body=body | {"preview": True}), "looking")
    seen = plain(exact)
    if as_json and preview:
        print_json(seen)
    elif not as_json:
        _print_preview(seen, exact["samples"])
    if preview or not seen["wouldChange"]:
        return
    confirm(f"Edit {seen['wouldChange']} of {seen['matched']}?", yes)
    applying = body | {"preview": False, "digest": seen["digest"], "comment": comment}
    applied = plain(result_of(desk.lines("POST", f"{PATH}:patch", body=applying), "editing"))
    if as_json:
        print_json(applied)
        return
    click.echo(f"{applied['changed']} edited")
    _print_reasons("left out", applied["leftOut"])


def _print_preview(preview: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> None:
    """`samples` with exact numbers."""
    click.echo(
        f"{preview['matched']} selected: {preview['wouldChange']} would change, {preview['unchanged']} are so already"
    )
    _print_reasons("would not apply", preview["notApplied"])
    validation = preview["validation"]
    for check, count in validation["passed"].items():
        click.echo(f"{check}: {count} of {validation['checked']} would pass")
    _print_reasons("would not pass", validation["complaints"])
    _print_reasons("not asked", validation["skipped"])
    for sample in samples:
        click.echo(f"\nfailure {plain(sample['id'])}, for example:")
        print_differences(sample["differences"])
        if any(finding["complaints"] for finding in sample["findings"]):
            print_findings(sample["findings"])


def _print_reasons(title: str, reasons: Sequence[Mapping[str, Any]]) -> None:
    if reasons:
        rows = [(one["count"], one["reason"], ", ".join(map(str, one["examples"]))) for one in reasons]
        print_table((title, "why", "such as"), rows, whole=True)


# Hold and erase.


@click.command()
@selection_options
@preview_option
@yes_option
@json_option
@acting_options
def hold(desk: Sender, selection: Mapping[str, Any], preview: bool, yes: bool, as_json: bool) -> None:
    """Put the selected failed messages under legal hold: they are neither erased nor cleaned up."""
    _hold(desk, selection, "hold", "Put {free} failed messages under legal hold?", preview, yes, as_json)


@click.command()
@selection_options
@preview_option
@yes_option
@json_option
@acting_options
def release(desk: Sender, selection: Mapping[str, Any], preview: bool, yes: bool, as_json: bool) -> None:
    """End the legal hold of the selected failed messages."""
    _hold(desk, selection, "release", "End the legal hold of {held} failed messages?", preview, yes, as_json)


def _hold(
    desk: Sender, selection: Mapping[str, Any], verb: str, question: str, preview: bool, yes: bool, as_json: bool
) -> None:
    meant = _meant(desk, selection, verb)
    if preview:
        _print_meant(meant, as_json)
        return
    confirm(question.format(**meant), yes)
    done = desk.post(f"{PATH}:{verb}", {"selection": selection})
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['changed']} changed")


@click.command()
@selection_options
@preview_option
@yes_option
@json_option
@acting_options
def erase(desk: Sender, selection: Mapping[str, Any], preview: bool, yes: bool, as_json: bool) -> None:
    """Erase the selected failed messages for good. Those under legal hold stay."""
    if yes and not selection:
        raise click.UsageError("without any selection it would be all of them: say so, with --since 9999w")
    meant = _meant(desk, selection, "erase")
    if preview:
        _print_meant(meant, as_json)
        return
    confirm(f"Erase {meant['free']} failed messages for good? {meant['held']} are under legal hold and stay.", yes)
    done = desk.post(f"{PATH}:erase", {"selection": selection, "confirm": meant["free"]})
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['erased']} erased")


def _meant(desk: Sender, selection: Mapping[str, Any], verb: str) -> dict[str, Any]:
    meant: dict[str, Any] = desk.post(f"{PATH}:{verb}", {"selection": selection, "preview": True})
    return meant


def _print_meant(meant: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(meant)
    else:
        click.echo(f"{meant['count']} selected, of which {meant['held']} are under legal hold")


def confirm(question: str, yes: bool) -> None:
    """A script says --yes: without anybody to ask, nothing is done."""
    try:
        if yes or click.confirm(question, err=True):
            return
    except click.Abort:
        click.echo(err=True)  # the question has no end of line
        raise FailedPrecondition("nothing was done: where nobody can be asked, say --yes") from None
    raise FailedPrecondition("nothing was done")
