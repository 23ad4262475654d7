"""The verbs `link set`, `show`, `reset`, `down` and `up`."""

from testbed.cli import options
from testbed.cli.command import Group, argument, option

link = Group("link", help="Change links of a live lab, and undo it.")
LINK_HELP = "One end of a link; or links of scale-up domains: HOST.gpu1:plane2, DOMAIN:plane3, HOST:planes."
link_argument = argument("port", metavar="NODE:IF", help=LINK_HELP)
optional_link = argument("port", required=False, metavar="[NODE:IF]", help=LINK_HELP)


@link.command("set")
@link_argument
@option("--rate", help="50% of the declared rate, or a rate of the fabric such as 100G.")
@option("--lab-rate", is_flag=True, help="--rate is meant in the lab: 5M are 5 Mbit/s.")
@option("--delay", help="One way, in fabric time: 5us.")
@option("--jitter", help="How much the delay varies: 1us.")
@option("--loss", help="Share of packets lost: 1%.")
@option("--loss-every", type=int, help="Lose one packet in so many.")
@option("--burst", type=float, help="Mean frames lost one after the other, of scale-up links.")
@option("--corruption", help="Share of packets with a bad byte.")
@option("--silent/--no-silent", default=None, help="Carrier stays up, every packet is lost.")
@option("--both", is_flag=True, help="In both directions.")
@options.lab_name
def set_link(
    port: str,
    rate: str | None,
    lab_rate: bool,
    delay: str | None,
    jitter: str | None,
    loss: str | None,
    loss_every: int | None,
    burst: float | None,
    corruption: str | None,
    silent: bool | None,
    both: bool,
    name: str | None,
) -> None:
    """Change what NODE:IF sends, or links of a scale-up domain: rate, delay, loss. `link reset` undoes it."""
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.link_changes import direction_sentence, link_change, plane_sentence, subnet_sentence
    from testbed.lab.core.deploy.links.changes import LinkControl
    from testbed.lab.features.scale_up.planes import PlaneControl

    change = link_change(
        rate=rate,
        lab_rate=lab_rate,
        delay=delay,
        jitter=jitter,
        loss=loss,
        loss_every=loss_every,
        burst=burst,
        corruption=corruption,
        silent=silent,
    )
    lab = open_lab(name)
    with LinkControl(lab) as control:
        control.set(port, change, both=both)
        if control.is_beside(port):
            print(subnet_sentence(lab, port) or plane_sentence(port, PlaneControl(lab).show(port)))
            return
        for end in control.ends(port) if both else [port]:
            print(direction_sentence(control.show(end)))


@link.command("show")
@optional_link
@options.lab_name
@options.format_option
def show(port: str | None, name: str | None, format: options.Format) -> None:
    """Show declared and changed values of a link, or of all that were changed."""
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.link_changes import (
        ValueRow,
        cut_sentences,
        direction_document,
        direction_rows,
        plane_document,
        plane_rows,
        read_conditions,
        subnet_sentence,
    )
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.links.changes import LinkControl
    from testbed.lab.features.scale_up.planes import PlaneControl

    lab = open_lab(name)
    if port is not None and format is options.Format.TABLE and (sentence := subnet_sentence(lab, port)):
        print(sentence)
        return
    planes = PlaneControl(lab)
    with LinkControl(lab) as control:
        if port is not None and control.is_beside(port):
            ends, links = [], planes.show(port)
        elif port is not None:
            ends, links = control.ends(port), []
        else:
            ends = control.changed()
            links = [item for link in planes.changed() for item in planes.show(link)]
        directions = [control.show(end) for end in ends]
    if port is None and format is options.Format.TABLE:
        cut = cut_sentences(lab)
        for sentence in cut:
            print(sentence)
        if not directions and not links:
            by_hand = [words for now in read_conditions(lab).values() for words in now.changes]
            for words in by_hand:
                print(f"changed by hand: {words}")
            if not cut and not by_hand:
                print("every link is as declared; `testbed link show NODE:IF` shows one")
            return
    rows = [row for item in directions for row in direction_rows(item, everything=port is not None)]
    rows += [row for item in links for row in plane_rows(item, everything=port is not None)]
    document = [*map(direction_document, directions), *map(plane_document, links)]
    emit(rows, ValueRow, format, document=document)


@link.command("reset")
@optional_link
@option("--all", "-a", is_flag=True, help="Every link of the lab.")
@options.lab_name
def reset(port: str | None, all: bool, name: str | None) -> None:
    """Bring a link back to what the topology declares."""
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.link_changes import wrong
    from testbed.lab.core.deploy.links.changes import LinkControl

    if (port is None) != all:
        raise wrong("name a port, or say --all", "for example `testbed link reset p1-s1-h1:rail1`")
    lab = open_lab(name)
    with LinkControl(lab) as control:
        if port is None:
            changed = control.reset_all()
            beside = sum(map(control.is_beside, changed))
            whose = "scale-up domains" if lab.model.infiniband is None else "the subnet"
            counts = [(len(changed) - beside, "directions"), (beside, f"links of {whose}")]
            words = " and ".join(f"{count} {what}" for count, what in counts if count)
            print(f"{words} are as declared again" if changed else "nothing was changed")
            return
        control.reset(port)
        if control.is_beside(port):
            print(f"{port} is as declared, in both directions")
            return
        peer = control.show(port).peer
        is_cut = len(control.ends(port)) == 1
        print(
            f"{port} is as declared; {peer} is on another machine" if is_cut else f"{port} and {peer} are as declared"
        )


@link.command("down")
@link_argument
@options.lab_name
def down(port: str, name: str | None) -> None:
    """Take the link at NODE:IF down, or links of a scale-up domain; the other end loses its carrier, or its signal."""
    _set_up(name, port, up=False)


@link.command("up")
@link_argument
@options.lab_name
def up(port: str, name: str | None) -> None:
    """Bring the link at NODE:IF up again, or links of a scale-up domain; a dead switch of one is started."""
    _set_up(name, port, up=True)


def _set_up(name: str | None, port: str, *, up: bool) -> None:
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.link_changes import plane_sentence, subnet_sentence
    from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
    from testbed.lab.features.scale_up.planes import PlaneControl

    lab = open_lab(name)
    with LinkControl(lab) as control:
        control.set(port, LinkChange(up=up))
        if control.is_beside(port):
            print(subnet_sentence(lab, port) or plane_sentence(port, PlaneControl(lab).show(port)))
            return
        print(f"{port} is {'up' if up else 'down'} (other end {control.show(port).peer})")
