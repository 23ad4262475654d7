"""No module imports one that imports it, not even inside a function: each can be read, and moved, by itself."""

import grimp
import networkx


def test_no_imports_go_in_a_circle() -> None:
    graph = grimp.build_graph("testbed", exclude_type_checking_imports=True, cache_dir=None)
    imports = networkx.DiGraph(
        (module, imported)
        for module in graph.modules - {"testbed"}  # which gives the API its short name, when it is asked for
        for imported in graph.find_modules_directly_imported_by(module)
        if imported != "testbed"
    )
    assert imports.number_of_edges() > 4_000
    circles = [sorted(found) for found in networkx.strongly_connected_components(imports) if len(found) > 1]
    assert circles == []
