"""`python -m testbed.agent`: Ultra Ethernet endpoints of this host, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys

from testbed.agent.agent import CLOSE_PATIENCE_NS, Agent
from testbed.agent.arguments import load_domain, make_config, make_parser
from testbed.agent.control import ControlServer
from testbed.transport.uet.errors import UetError


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to end; 2 for arguments that cannot work."""
    given = make_parser().parse_args(arguments)
    try:
        config = make_config(given)
        agent = Agent()
    except (UetError, OSError) as error:
        print(f"testbed.agent: {error}", file=sys.stderr)
        return 2
    patience_ns = 0
    try:
        server = ControlServer(agent, given.control)
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: server.stop())
            for address in given.address:
                # A domain for each FEP: windows and counters belong to one endpoint.
                alone = len(given.address) == 1
                security = None if given.tss is None else load_domain(given.tss, alone=alone)
                fep = agent.open(address, config, delay_ns=given.delay, security=security)
                for job_id in given.job:
                    endpoint = fep.endpoint(job_id=job_id, resource_index=1)
                    server.commands.adopt(fep, endpoint)
            print("ready", flush=True)
            server.run()
            patience_ns = CLOSE_PATIENCE_NS
        finally:
            server.close()
    except (UetError, OSError, ValueError) as error:
        print(f"testbed.agent: {error}", file=sys.stderr)
        return 2
    finally:
        agent.close(patience_ns=patience_ns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
