"""The backend `lab` of torch.distributed: collectives and messages in the words of UET, from NIC to NIC of a lab.

    import testbed.run.launch.torch_backend  # registers it
    torch.distributed.init_process_group("lab")

It runs in the ranks that `testbed launch` starts, each on a NIC of its own. A thread of the rank drives its endpoint,
so that acknowledgements leave while it computes. Source: PyTorch, `torch.distributed.Backend.register_backend`, and
the tutorial "Customize Process Group Backends Using Cpp Extensions", of which this is the form in Python.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from testbed.endpoints.fabric import Fabric
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.user_space.uet import UetEndpointSettings
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.run.launch.rings import Rings

JOB = 35
_COMBINE = {"SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
_CLOSE_S = 5.0


class _Endpoint:
    """The endpoint of this rank, and the thread that drives it."""

    def __init__(self, rank: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._ready: Future[Rings] = Future()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(rank),), daemon=True)
        self._thread.start()
        self.rings = self._ready.result()
        atexit.register(self.close)

    async def _serve(self, rank: int) -> None:
        try:
            lab = RunningLab.open(os.environ["LAB_NAME"], StateDirectory())
            settings, addresses = UetEndpointSettings(lab.model, lab.plan), os.environ["LAB_PEERS"].split(",")
            if len(set(addresses)) < len(addresses):
                raise RuntimeError("the backend lab has one rank on each NIC: launch with --per-gpu, or a rank a host")
            nics = {str(nic.address.ip): nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None}
            mine, peers = nics[addresses[rank]], [nics[address] for address in addresses]
            marking = Marking(data=settings.dscp, retransmission=settings.dscp, control=settings.control_dscp)
            async with Fabric() as fabric:
                config: dict[str, Any] = settings.config(mine)
                domain = fabric.open(
                    addresses[rank],
                    UetConfig(**config),
                    sockets=SocketConfig(marking=marking),
                    delay_ns=settings.delays_ns(mine, peers) or 0,
                )
                endpoint = domain.endpoint(job_id=JOB)
                self._ready.set_result(Rings(endpoint, [FepAddress(one, job_id=JOB) for one in addresses], rank))
                await self._closing.wait()
        except BaseException as error:  # whoever waits for the endpoint, or for what goes over it, is told
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSE_S)


class LabProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """The ranks of a job. Tensors are contiguous and in the memory of the CPU."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._endpoint = _Endpoint(rank)
        self._rings = self._endpoint.rings
        self._rank, self._ranks, self._number = rank, size, 0

    def getBackendName(self) -> str:  # noqa: N802  # torch calls it so
        """Return what torch calls this backend."""
        return "lab"

    def _work(self, result: Any, begin: Callable[[int], Coroutine[Any, Any, None]]) -> Any:
        """Begin a collective, whose number is the same on all ranks since all begin them in one order."""
        self._number += 1
        told: Any = torch.futures.Future()

        def ended(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                told.set_result(result)
            else:
                told.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

        self._endpoint.begin(begin(self._number)).add_done_callback(ended)
        return _create_work_from_future(told)

    def allreduce(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """Combine tensors of all ranks, in place."""
        combine, mean = _operation(opts)

        async def all_of_them(number: int) -> None:
            for tensor in tensors:
                array = _array(tensor)
                await self._rings.all_reduce(array, combine, number)
                if mean:
                    np.divide(array, self._ranks, out=array)

        return self._work(list(tensors), all_of_them)

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """Combine several tensors of all ranks, in place."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """Give all ranks the tensor of one of them."""
        root = 0 if opts is None else opts.rootRank
        return self._work(list(tensors), partial(self._rings.broadcast, _array(tensors[0]), root))

    def allgather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Any:
        """Give all ranks the tensors of all."""
        blocks = [_array(tensor) for tensor in outputs[0]]
        blocks[self._rank][...] = _array(inputs[0])
        return self._work(list(outputs), partial(self._rings.all_gather, blocks))

    def _allgather_base(self, output: Any, given: Any, opts: Any = None) -> Any:
        return self.allgather([list(output.view(self._ranks, -1).unbind(0))], [given.view(-1)])

    def reduce_scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any = None) -> Any:
        """Combine the blocks of all ranks, of which each gets its own."""
        combine, mean = _operation(opts)

        async def own_block(number: int) -> None:
            found = await self._rings.reduce_scatter([_array(one).copy() for one in inputs[0]], combine, number)
            _array(outputs[0])[...] = found / self._ranks if mean else found

        return self._work(list(outputs), own_block)

    def _reduce_scatter_base(self, output: Any, given: Any, opts: Any = None) -> Any:
        return self.reduce_scatter([output.view(-1)], [list(given.view(self._ranks, -1).unbind(0))], opts)

    def barrier(self, opts: Any = None) -> Any:
        """Wait until all ranks have come here."""
        return self.allreduce([torch.zeros(self._ranks)])

    def send(self, tensors: Sequence[Any], to: int, tag: int) -> Any:
        """Send a tensor to a rank."""
        self._number -= 1  # a message is no collective, and other ranks count none
        return self._work(list(tensors), lambda _: self._rings.send_message(_array(tensors[0]), to, tag))

    def recv(self, tensors: Sequence[Any], source: int, tag: int) -> Any:
        """Receive a tensor of a rank."""
        self._number -= 1
        return self._work(list(tensors), lambda _: self._rings.receive_message(_array(tensors[0]), source, tag))


def _array(tensor: Any) -> Any:
    """Return a tensor's memory as a flat array. Raises `ValueError` for one that is not contiguous, or of a GPU."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError("the backend lab carries contiguous tensors of the CPU")
    return tensor.detach().view(-1).numpy()


def _operation(opts: Any) -> tuple[Any, bool]:
    """Return the function that combines, and whether the mean is asked for."""
    asked = "SUM" if opts is None else getattr(opts.reduceOp, "op", opts.reduceOp)  # its form varies between releases
    given = str(asked).rsplit(".", 1)[-1].upper()
    if given not in _COMBINE:
        raise ValueError(f"the backend lab combines by {', '.join(_COMBINE)}, and not by {given}")
    return _COMBINE[given], given == "AVG"


def _make(store: Any, rank: int, size: int, timeout: Any) -> LabProcessGroup:
    return LabProcessGroup(rank, size)


try:
    dist.Backend.register_backend("lab", _make, devices=["cpu"])
except TypeError:  # torch 1.13 knows of no devices here
    dist.Backend.register_backend("lab", _make)
