"""Files of tests that the gate has and `./lab test` has not: other files touch all that they are about in less time.

Each takes twenty seconds and more beside others, on two CPUs.
"""

from __future__ import annotations

NETNS = "tests/integration/netns"
LONG_FILES = frozenset(
    {
        "tests/browser/console/views/test_staying.py",
        "tests/browser/console/views/test_views.py",
        "tests/browser/test_graph_browser.py",
        "tests/browser/test_report_layout.py",
        "tests/integration/ssh/test_machine_faults.py",
        "tests/integration/test_wheel.py",
        "tests/unit/endpoints/perftest/test_runs.py",
        "tests/unit/lab/formats/test_netlab_itself.py",
        "tests/unit/run/launch/test_launcher.py",
        *(
            f"{NETNS}/test_{name}.py"
            for name in (
                *("anycast_vteps", "apply_pairs", "apply_tenants", "apply_traffic", "carried_network", "carrier"),
                *("changed_domains", "changed_services", "changes_cut_short", "changes_refused", "changing_labs"),
                *("docs", "drift", "exercises", "external", "gnmi", "health", "imported_labs", "inference_requests"),
                *("infiniband", "interrupts", "isolation", "leftovers", "mininet", "mixed_transports", "node_work"),
                *("nvme_storage", "over_machines", "perftest", "pools", "port_cleanup", "probes"),
                *("program_scenarios", "pytest_plugin", "routing_loops", "runs_over_machines", "scale_up_packets"),
                *("scenario_faults", "scenario_sweeps", "slurm", "startup_config", "storage_targets"),
            )
        ),
    }
)
"""What a mark `gate` is given by, in `tests/conftest.py`."""
