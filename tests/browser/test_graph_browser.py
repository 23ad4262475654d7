"""The picture of a lab as a browser opens it: all of it is in the window, whatever its size, and can be zoomed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from headless_browser import browse

from testbed.lab.core.schema.load import load_topology
from testbed.lab.graph import render_html

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
LARGE = ("superpod-4su", "nvl72-superpod")
"""What is wider than the window at the size of its labels; `demo` is not, and may be enlarged."""
NETWORKS = """
name: networks
fabric: {design: rail-optimized, segments: 2, hosts: 16, gpus: 4, spines: 2}
networks:
  frontend: {design: leaf-spine, leaves: 4, nic: {per: host, ports: 2, rate: 100G}}
  storage: {design: leaf-spine, leaves: 2, nic: {per: host, rate: 200G}}
"""
"""Several networks and more hosts than are drawn as cards."""

pytestmark = [pytest.mark.browser, pytest.mark.process]


def numbers(page: str, window: tuple[int, int], script: str, directory: Path) -> list[int]:
    """What `script` evaluates to in a page, in a window of this size."""
    text, replaced = POLICY.subn("", page)  # which forbids the script that measures, as it should
    assert replaced == 1
    end = f'<script>document.title = "measured " + ({script}).map(Math.round).join(" ");</script></body>'
    (directory / "page.html").write_text(text.replace("</body>", end))
    options = [f"--window-size={window[0]},{window[1]}", "--dump-dom"]
    shown = browse(directory / "page.html", options, directory / "browser")
    found = re.search(r"<title>measured ([-\d ]+)</title>", shown)
    assert found is not None
    return [int(word) for word in found[1].split()]


def page(name: str) -> str:
    return render_html(load_topology(TOPOLOGIES / f"{name}.yml"))


def datacentre() -> str:
    """The page of datacentre.yml without the layer of scale-up domains."""
    lab = load_topology(TOPOLOGIES / "datacentre.yml")
    return render_html(replace(lab, scale_up=replace(lab.scale_up, stated=False)))


PLACES = """(() => {
  const all = document.getElementById("scroll"), box = all.getBoundingClientRect();
  const picture = document.getElementById("picture").getBoundingClientRect();
  const spare = [picture.left - box.left, box.right - picture.right];
  spare.push(picture.top - box.top, box.bottom - picture.bottom);
  return [...spare, all.scrollWidth - all.clientWidth, all.scrollHeight - all.clientHeight, picture.width, box.width];
})()"""


@pytest.mark.parametrize("name", [*LARGE, "demo", "datacentre"])
@pytest.mark.parametrize("window", [(1400, 900), (1920, 1080), (390, 800)])
def test_a_picture_opens_fitted_to_the_window(name: str, window: tuple[int, int], tmp_path: Path) -> None:
    left, right, top, bottom, *beyond, width, room = numbers(page(name), window, PLACES, tmp_path)
    assert min(left, right, top, bottom) >= -1, "it is in the window as a whole"
    assert max(beyond) <= 1, "and nothing is left to scroll to"
    assert abs(left - right) <= 2, "in the middle"
    assert width > 0.6 * room, "and large"


def test_zooming_in_and_fitting_again(tmp_path: Path) -> None:
    """What was zoomed is scrolled, from the middle of what was seen; `Fit` shows all of it again."""
    script = """(() => {
      const all = document.getElementById("scroll"), found = [];
      for (const button of ["in", "in", "in", "fit"]) {
        document.getElementById(button).click();
        found.push(all.scrollWidth - all.clientWidth, all.scrollLeft);
      }
      return found;
    })()"""
    found = numbers(page("superpod-4su"), (1400, 900), script, tmp_path)
    beyond, left = found[::2], found[1::2]
    assert 100 < beyond[0] < beyond[1] < beyond[2] and beyond[3] <= 1
    assert all(abs(2 * at - more) <= 4 for at, more in zip(left[:3], beyond[:3], strict=True))


def test_a_picture_is_fitted_anew_to_another_window_until_one_zooms(tmp_path: Path) -> None:
    script = """(() => {
      const all = document.getElementById("scroll"), found = [];
      const resized = width => {
        all.style.flex = "none"; all.style.width = width + "px";
        window.dispatchEvent(new Event("resize"));
        found.push(document.getElementById("picture").getBoundingClientRect().width);
      };
      resized(700); resized(600);
      document.getElementById("in").click();
      resized(500);
      return found;
    })()"""
    first, second, zoomed = numbers(page("superpod-4su"), (1400, 900), script, tmp_path)
    assert abs(first - 700) <= 1 and abs(second - 600) <= 1
    assert abs(zoomed - 750) <= 2, "who zoomed keeps it"


SEEN = """
  const seen = part => part.getClientRects().length > 0;
  const nodes = JSON.parse(document.getElementById("lab").textContent).nodes;
  const of = net => [...document.querySelectorAll(".n")].filter(one => nodes[one.dataset.n][8] === net);
  const shown = net => of(net).filter(seen).length;
  const counts = () => [shown(-1), shown(0), shown(1), shown(2)];
  const box = number => document.getElementById("layer" + number);
"""
HOSTS, BACKEND, FRONTEND, STORAGE = 8, 10, 6, 4 + 2
"""Nodes of datacentre.yml, by network; those of storage are its switches and its two targets."""


def test_networks_are_left_out_and_put_back(tmp_path: Path) -> None:
    script = f"""(() => {{ {SEEN}
      const found = [...counts()];
      for (const number of [1, 0, 2, 1]) {{ box(number).focus(); box(number).click(); found.push(...counts()); }}
      return found;
    }})()"""
    found = numbers(datacentre(), (1400, 900), script, tmp_path)
    assert [tuple(found[at : at + 4]) for at in range(0, len(found), 4)] == [
        (HOSTS, BACKEND, FRONTEND, STORAGE),
        (HOSTS, BACKEND, 0, STORAGE),
        (HOSTS, 0, 0, STORAGE),
        (HOSTS, 0, 0, 0),
        (HOSTS, 0, FRONTEND, 0),
    ]


def test_lines_of_a_carried_network_go_with_its_layer_and_with_its_carriers(tmp_path: Path) -> None:
    """In converged.yml storage and management, 2 and 3, are on the leaves of the front end, 1; each has four lines."""
    script = f"""(() => {{ {SEEN}
      const lines = net => [...document.querySelectorAll(".drop.net" + net)].filter(seen).length;
      const found = [lines(1), lines(2), lines(3)];
      for (const number of [2, 1, 2, 1]) {{ box(number).click(); found.push(lines(1), lines(2), lines(3)); }}
      return found;
    }})()"""
    found = numbers(page("converged"), (1400, 900), script, tmp_path)
    assert found == [*(4, 4, 4), *(4, 0, 4), *(0, 0, 0), *(0, 0, 0), *(4, 4, 4)]


def test_hosts_have_their_whole_names_without_the_back_end(tmp_path: Path) -> None:
    """Its pods and segments are boxes around them, without which two hosts would be called h1."""
    script = f"""(() => {{ {SEEN}
      const names = () => new Set(of(-1).flatMap(host => [...host.querySelectorAll(".l")].filter(seen))
                                        .map(one => one.textContent)).size;
      const texts = () => of(-1).flatMap(host => [...host.querySelectorAll(".l")]).filter(seen).length;
      const found = [names(), texts()];
      box(0).click();
      return [...found, names(), texts()];
    }})()"""
    assert numbers(datacentre(), (1400, 900), script, tmp_path) == [4, HOSTS, HOSTS, HOSTS]


def test_networks_are_left_out_without_scripts(tmp_path: Path) -> None:
    """The style does it: here the page's own script is gone, and a box is as a reader has left it."""
    text = re.sub(r"<script>.*?</script>", "", datacentre(), flags=re.DOTALL)
    text = text.replace('value="1" checked', 'value="1"')
    counted = numbers(text, (1400, 900), f"(() => {{ {SEEN} return counts(); }})()", tmp_path)
    assert counted == [HOSTS, BACKEND, 0, STORAGE]


@pytest.mark.parametrize("window", [(1400, 900), (800, 600)])
def test_what_is_left_is_fitted_to_the_window(window: tuple[int, int], tmp_path: Path) -> None:
    """Room of what is left out is given to the rest, and all of that stays in the picture."""
    script = f"""(() => {{ {SEEN}
      const found = [], picture = document.getElementById("picture");
      const measure = () => {{
        const all = picture.getBoundingClientRect();
        const rects = [...document.querySelectorAll(".n, .band")].filter(seen).map(one => one.getBoundingClientRect());
        found.push(Math.min(...rects.map(one => Math.min(one.top - all.top, one.left - all.left, all.right - one.right,
                                                         all.bottom - one.bottom))));
        found.push(picture.viewBox.baseVal.height);
      }};
      box(3).click(); measure(); box(0).click(); measure(); box(1).click(); measure(); box(2).click(); measure();
      return found;
    }})()"""
    found = numbers(datacentre(), window, script, tmp_path)
    assert min(found[::2]) >= 0
    whole, below, storage, hosts = found[1::2]
    assert whole > below + 300 and below == storage > hosts + 150


def test_lines_follow_networks_that_move_together_and_hosts_that_open(tmp_path: Path) -> None:
    """A line to a network below ends at its leaf and begins at its host group, whatever is left out or opened."""
    script = f"""(() => {{ {SEEN}
      const found = [], apart = () => {{
        let most = 0;
        for (const drop of [...document.querySelectorAll(".drop")].filter(seen)) {{
          const line = drop.getBoundingClientRect();
          const leaf = document.querySelector(`.n[data-n="${{drop.dataset.a}}"] .c`).getBoundingClientRect();
          const tray = document.querySelector(`#tray${{drop.dataset.b.slice(1)}} > .c`).getBoundingClientRect();
          const aside = Math.max(leaf.left - line.right, line.left - leaf.right, 0);
          most = Math.max(most, Math.abs(line.bottom - leaf.top), Math.abs(line.top - tray.bottom), aside);
        }}
        return 10 * most;
      }};
      found.push(apart());
      document.getElementById("expand").click(); found.push(apart());
      box(1).click(); found.push(apart());
      document.querySelector(".toggle").dispatchEvent(new MouseEvent("click", {{bubbles: true}})); found.push(apart());
      found.push(document.querySelectorAll(".drop").length, document.querySelectorAll(".tray.open").length);
      return found;
    }})()"""
    path = tmp_path / "networks.yml"
    path.write_text(NETWORKS)
    *apart, lines, still_open = numbers(render_html(load_topology(path)), (1400, 900), script, tmp_path)
    assert lines == 2 * 2 + 2 and still_open == 1
    assert max(apart) < 20, "two pixels: half the width of a line that stands for sixteen links"


def test_what_is_left_out_is_neither_found_nor_walked_to(tmp_path: Path) -> None:
    script = f"""(() => {{ {SEEN}
      const search = document.getElementById("search"), picture = document.getElementById("picture");
      const find = text => {{
        search.value = text;
        search.dispatchEvent(new Event("input"));
        return document.querySelectorAll(".n.on").length;
      }};
      const press = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", {{key, bubbles: true}}));
      box(3).click();
      const found = [find("leaf")];
      box(1).click();
      found.push(find("leaf"));
      find("p1-s1-h2"); press(search, "Enter");
      const rows = [...document.querySelectorAll("#detail tbody tr")];
      found.push(rows.length);
      for (const key of ["ArrowDown", "ArrowDown"]) press(document.activeElement, key);
      found.push(nodes[document.activeElement.dataset.n][8]);
      box(2).click();
      const stop = picture.querySelectorAll('.n[tabindex="0"]');
      found.push(stop.length, seen(stop[0]) ? 1 : 0);
      return found;
    }})()"""
    found = numbers(datacentre(), (1400, 900), script, tmp_path)
    assert found == [6, 2, 4 + 1, 2, 1, 1]


def test_a_view_of_some_networks_can_be_linked_to(tmp_path: Path) -> None:
    text = datacentre().replace("location.hash.slice(1)", '"networks=backend,storage"')
    script = f"(() => {{ {SEEN} return [...counts(), document.querySelectorAll('.layer input:checked').length]; }})()"
    assert numbers(text, (1400, 900), script, tmp_path) == [HOSTS, BACKEND, 0, STORAGE, 2]


READ = """(() => {
  const picture = document.getElementById("picture"), all = document.getElementById("scroll").getBoundingClientRect();
  const zoom = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
  const seen = part => part.getClientRects().length > 0 && part.textContent !== "";
  const texts = [...picture.querySelectorAll(".l, .tl, .title, .row")].filter(seen);
  const least = Math.min(...texts.map(one => parseFloat(getComputedStyle(one).fontSize) * zoom));
  const small = Math.min(...[...picture.querySelectorAll(".s, .td, .rowd")].filter(seen)
    .map(one => parseFloat(getComputedStyle(one).fontSize) * zoom));
  const beyond = [...picture.querySelectorAll(".n")].map(node => {
    const card = node.querySelector(".c").getBoundingClientRect();
    return Math.max(0, ...[...node.querySelectorAll("text")].filter(seen)
      .map(one => one.getBoundingClientRect().width - card.width));
  });
  const cut = texts.filter(one => one.matches(".n .l") && one.textContent.includes("…")).length;
  const rect = picture.getBoundingClientRect();
  const shares = [100 * rect.width / all.width, 100 * rect.height / all.height];
  return [100 * least, 100 * small, Math.max(...beyond), cut, ...shares, texts.length];
})()"""


def eight_pods() -> str:
    return render_html(load_topology(TOPOLOGIES / "multi-pod.yml", overrides={"fabric.pods": 8}))


LEGIBLE = {
    "datacentre": lambda: page("datacentre"),
    "nvl72": lambda: page("nvl72"),
    "nvl72-superpod": lambda: page("nvl72-superpod"),
    "superpod-4su": lambda: page("superpod-4su"),
    "eight-pods": eight_pods,
    "demo": lambda: page("demo"),
    "single-switch": lambda: page("single-switch"),
}


@pytest.mark.parametrize("name", LEGIBLE)
@pytest.mark.parametrize("window", [(1400, 900), (1920, 1080)])
def test_text_can_be_read_as_a_picture_opens_and_no_half_is_empty(
    name: str, window: tuple[int, int], tmp_path: Path
) -> None:
    least, small, beyond, cut, wide, high, texts = numbers(LEGIBLE[name](), window, READ, tmp_path)
    assert texts > 5
    assert least >= 1000, "ten pixels on the screen"
    assert small >= 880
    assert beyond <= 0 and not cut, "names are whole, and within their boxes"
    assert min(wide, high) > 55, "of the window"


def test_lines_of_rails_that_look_alike_are_told_apart_by_their_dashes(tmp_path: Path) -> None:
    """For most colour-blind people 1 and 5, 2, 4 and 8, 3 and 7 have one colour."""
    script = """(() => [[1, 5], [2, 4], [2, 8], [4, 8], [3, 7]].flatMap(pair => {
      const dash = rail => [...document.querySelectorAll(".k.mesh.r" + rail + ", .k.port.r" + rail)]
        .map(one => getComputedStyle(one).strokeDasharray);
      const chip = rail => getComputedStyle(document.querySelector(`.chip[data-rail="${rail}"] i`)).borderTopStyle;
      const [one, other] = pair.map(rail => new Set(dash(rail)));
      const same = [...one].some(dash => other.has(dash));
      return [one.size, other.size, same ? 1 : 0, chip(pair[0]) === chip(pair[1]) ? 1 : 0];
    }))()"""
    lab = load_topology(TOPOLOGIES / "rail-only.yml")
    found = numbers(render_html(lab), (1400, 900), script, tmp_path)
    assert found == [1, 1, 0, 0] * 5


def test_hosts_that_open_push_down_what_is_on_lower_shelves(tmp_path: Path) -> None:
    script = """(() => {
      const found = [], rect = one => one.getBoundingClientRect();
      const measure = () => {
        const frames = [...document.querySelectorAll(".frame.seg")].map(rect);
        let most = -1000, out = 0;
        for (const one of frames) for (const other of frames) if (one.top < other.top - 1)
          most = Math.max(most, Math.min(one.bottom - other.top, one.right - other.left, other.right - one.left));
        const within = (inner, outer) => inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1
          && inner.left >= outer.left - 1 && inner.right <= outer.right + 1;
        for (const part of document.querySelectorAll(".tray > .c, .n.t2:not(.low .n) > .c"))
          if (!frames.some(frame => within(rect(part), frame))) out++;
        const ends = [...document.querySelectorAll(".lines .k.mesh")].filter(line => !line.closest(".low"));
        const apart = Math.max(...ends.map(line => {
          const lower = document.querySelector(`.n[data-n="${line.dataset.b}"] .c`);
          return Math.abs(rect(line).bottom - rect(lower).top);
        }));
        found.push(new Set(frames.map(frame => Math.round(frame.top))).size, most > 0 ? 1 : 0, out, apart > 2 ? 1 : 0);
      };
      measure();
      for (const turn of [1, 2]) { document.getElementById("expand").click(); measure(); }
      return found;
    })()"""
    found = numbers(page("nvl72-superpod"), (1400, 900), script, tmp_path)
    shelves = found[0]
    assert shelves > 1, "it is folded"
    assert found == [shelves, 0, 0, 0] * 3
