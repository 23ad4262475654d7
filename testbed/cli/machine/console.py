"""The verb `console`."""

from pathlib import Path

from testbed.cli.command import PATH, argument, command, option


@command("console")
@argument("target", required=False, metavar="[LAB|RESULTS]", help="What it shows first: a lab, or results/DIR.")
@option("--bind", default="127.0.0.1:9470", help="Address and port, or unix:PATH.")
@option("--write", is_flag=True, help="Let pages change labs; without it they only look.")
@option("--open", "opens", is_flag=True, help="Open the page in a browser here.")
@option("--tls", nargs=2, type=PATH, metavar="<certificate> <key>", help="Serve by TLS, as another address needs.")
@option("--known-as", help="Address by which browsers know it, where it is forwarded.")
@option("--also", multiple=True, metavar="<machine>", help="List its labs, too: vm, or ssh://user@host. Repeatable.")
@option("--of-lab", help="Only look at this lab, at its management address, without a login: the service console.")
def console(
    target: str | None,
    bind: str,
    write: bool,
    opens: bool,
    tls: tuple[Path, Path] | None,
    known_as: str | None,
    also: tuple[str, ...],
    of_lab: str | None,
) -> None:
    """Show labs and records in a browser: live maps, tables, charts, and what can be done. Ctrl-C ends it.

    It prints a link that is good for one browser. Needs root to see labs that run; a record needs none.
    """
    from testbed.base.errors import TestbedError
    from testbed.base.installation.extras import extra_missing
    from testbed.cli.lab_choice import require_sight

    if of_lab is not None and (write or also):
        raise TestbedError("--of-lab only looks at one lab: leave --write and --also out")
    try:
        from testbed.api.console.browser import tell_on_standard_error
        from testbed.api.console.console import ConsoleSettings
        from testbed.api.console.listening import Tls, parse_bind
        from testbed.api.console.start import ConsoleServing, opened, roots_of, serve_console
    except ModuleNotFoundError as error:
        raise extra_missing("console", "the console", error) from error
    from testbed.lab.core.deploy.records.state import StateDirectory

    address = parse_bind(bind)
    state, roots = StateDirectory(), roots_of(target)
    opens_at = opened(target, roots, state) if of_lab is None else f"/api/labs/{of_lab}"
    if opens_at is None or opens_at.startswith("/api/labs/"):
        require_sight("looking into labs that run")
    serve_console(
        ConsoleServing(
            bind=address,
            settings=ConsoleSettings(
                roots=() if of_lab else roots, write=write, opens=opens_at, only=of_lab, also=also
            ),
            tls=None if tls is None else Tls(certificate=tls[0], key=tls[1]),
            opens_browser=opens,
            known_as=None if known_as is None else parse_bind(known_as),
            of_lab=of_lab,
        ),
        tell_on_standard_error,
    )
