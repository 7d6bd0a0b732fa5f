# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: device work that is captured once and then replayed without running the program's code.

The names and arguments are the same as in ``torch.cuda.graphs``. docs/graphs.md explains the rules.
"""

import gc
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar

import torch
from torch.utils import _pytree

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg.devices import synchronize
from torch_openreg.openreg.graph_inputs import GraphInputs
from torch_openreg.openreg.memory import empty_cache, empty_host_cache
from torch_openreg.openreg.streams import Stream, StreamContext, current_stream, stream

#: The capture that torch.compile replays with mode="reduce-overhead" (compile/csrc/graph_replay.h).
Recording = _C._Recording

PoolHandle = tuple[int, int]
_Tensors = tuple[torch.Tensor, ...]


def is_current_stream_capturing() -> bool:
    """Return whether the current stream is being captured. Does not initialize the device."""
    return _C.is_current_stream_capturing()


def graph_pool_handle() -> PoolHandle:
    """Return the ID of a new memory pool, which several graphs may share."""
    return _C.new_pool_id()


class OpenRegGraph(_C._Graph):
    """Work that was captured from a stream, and the memory that this work uses.

    Args:
        keep_graph: if True, the graph is instantiated by ``instantiate`` or by the first
            ``replay``; otherwise by the end of the capture.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self._inputs: GraphInputs | None = None

    def __repr__(self) -> str:
        try:
            return f"<{MODULE}.OpenRegGraph of {self.node_count()} commands>"
        except RuntimeError:
            return f"<{MODULE}.OpenRegGraph without a capture>"

    def capture_begin(
        self,
        pool: PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Start capturing the work that any thread launches on the current stream.

        Args:
            pool: the pool to allocate from (``graph_pool_handle()``, or ``pool()`` of another
                graph); None means a new pool. Graphs that share a pool must be replayed in the
                order of their captures, and a replay overwrites the results of the other graphs.
            capture_error_mode: which threads must not wait, or allocate without torch, during the
                capture: ``"global"``, ``"thread_local"`` or ``"relaxed"``.
            check_input_liveness: track the external tensors that captured operators use; ``replay``
                raises an error if one of them was freed. Capturing takes longer.

        Raises:
            RuntimeError: if the graph already has a capture, or the stream is being captured.
            ValueError: for any other mode.
        """
        # A replay must not read a cast that autocast made before the capture and frees later, and
        # eager code must not read one that only replays compute.
        torch.clear_autocast_cache()
        super().capture_begin(pool, capture_error_mode)
        self._inputs = GraphInputs() if check_input_liveness else None
        if self._inputs is not None:
            self._inputs.follow()

    def capture_end(self) -> None:
        """End the capture. The current stream must be the one on which the capture began.

        Raises:
            RuntimeError: if the capture became invalid or a stream was not joined; the message
                states the reason, and the graph is empty.
        """
        if self._inputs is not None:
            self._inputs.stop()
        torch.clear_autocast_cache()
        super().capture_end()

    def instantiate(self) -> None:
        """Prepare a graph with ``keep_graph=True`` for replays."""
        super().instantiate()

    def replay(self) -> None:
        """Queue the graph on its device's current stream.

        Raises:
            RuntimeError: if the graph has no capture; with ``check_input_liveness``, if a tensor
                that it reads or writes was freed.
        """
        if self._inputs is not None:
            self._inputs.require(self.pool())
        super().replay()

    def reset(self) -> None:
        """Wait for queued replays, then free the graph and its memory."""
        super().reset()
        self._inputs = None

    def pool(self) -> PoolHandle:
        """Return the ID of the graph's memory pool."""
        return super().pool()

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Allow captured operators to use a generator other than the device's default generator."""
        super().register_generator_state(generator)

    def enable_debug_mode(self) -> None:
        """Enable ``debug_dump``."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph's commands and dependencies to a file in Graphviz format."""
        super().debug_dump(debug_path)

    def node_count(self) -> int:
        """Return the number of commands that a replay runs."""
        return super().node_count()


class graph:
    """Context manager that captures its block into a graph.

    On entry it waits for the device and empties the caches of device memory and pinned memory.

    Args:
        openreg_graph: the graph that receives the capture.
        pool: see ``OpenRegGraph.capture_begin``.
        stream: the stream to capture, which is current in the block; None selects a stream shared
            by all graphs.
        capture_error_mode: see ``OpenRegGraph.capture_begin``.
        enable_annotations: exists for compatibility with torch.cuda, where the driver numbers the
            kernels of a graph. Profiles of this device name the operators of a replay without it.
        check_input_liveness: see ``OpenRegGraph.capture_begin``.

    Raises:
        NotImplementedError: for ``enable_annotations=True``.
    """

    default_capture_stream: ClassVar[torch.Stream | None] = None

    def __init__(
        self,
        openreg_graph: OpenRegGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise NotImplementedError(
                "enable_annotations=True: kernel annotations (torch.cuda._graph_annotations) need "
                "CUDA's driver; profiles of this device name the operators of a replay without them"
            )
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
            if stream.device.index != torch.accelerator.current_device_index():
                stream = graph.default_capture_stream = Stream()
        self.openreg_graph = openreg_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self._context: StreamContext | None = None

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        empty_host_cache()  # torch keeps the host pools of earlier graphs until this call
        self._context = stream(self.capture_stream)
        self._context.__enter__()
        try:
            self.openreg_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._context is not None
        try:
            self.openreg_graph.capture_end()
        finally:
            self._context.__exit__(kind, error, traceback)


def _check_callable(function: Callable[..., Any]) -> None:
    if not isinstance(function, torch.nn.Module):
        return
    hooks = (
        function._backward_hooks,
        function._backward_pre_hooks,
        function._forward_hooks,
        function._forward_pre_hooks,
    )
    if any(len(kind) > 0 for kind in hooks):
        raise RuntimeError(
            "make_graphed_callables: the module has hooks, which a replay would not call; register "
            "them on the graphed module"
        )
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise RuntimeError(
            "make_graphed_callables: a buffer of the module requires grad, but only parameters "
            "may: call requires_grad_(False) on it"
        )


class _Graphed:
    """A callable, its two graphs, and the tensors that the graphs read and write."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        leaves, self.spec = _pytree.tree_flatten(arguments)
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    "make_graphed_callables: sample_args may contain only tensors, but got "
                    f"{type(leaf).__name__}: bind other arguments to the callable"
                )
        self.inputs: _Tensors = tuple(leaves)
        self.parameters: _Tensors = (
            tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        )
        self.forward = OpenRegGraph()
        self.backward: OpenRegGraph | None = None
        self.outputs: _Tensors = ()
        self.out_spec: Any = None
        self.output_grads: tuple[torch.Tensor | None, ...] = ()
        self.input_grads: tuple[torch.Tensor | None, ...] = ()

    @property
    def surface(self) -> _Tensors:
        return self.inputs + self.parameters

    def run(self) -> None:
        outputs, self.out_spec = _pytree.tree_flatten(self.function(*self.arguments))
        self.outputs = tuple(outputs)

    def differentiate(self, allow_unused: bool) -> None:
        wanted = tuple(t for t in self.surface if t.requires_grad)
        if not wanted or self.backward is None:
            self.input_grads = (None,) * len(self.surface)
            return
        grads = torch.autograd.grad(
            outputs=tuple(o for o in self.outputs if o.requires_grad),
            inputs=wanted,
            grad_outputs=tuple(g for g in self.output_grads if g is not None),
            only_inputs=True,
            allow_unused=allow_unused,
        )
        found = iter(grads)
        self.input_grads = tuple(next(found) if t.requires_grad else None for t in self.surface)

    def make_output_grads(self) -> None:
        self.output_grads = tuple(
            torch.empty_like(o) if o.requires_grad else None for o in self.outputs
        )
        if any(g is not None for g in self.output_grads) and self.backward is None:
            self.backward = OpenRegGraph()

    def forget(self) -> None:
        self.outputs = ()
        self.output_grads = ()
        self.input_grads = ()

    def replayer(self) -> Callable[..., Any]:
        graphed = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *given: torch.Tensor) -> _Tensors:
                for static, tensor in zip(graphed.inputs, given, strict=False):
                    if static.data_ptr() != tensor.data_ptr():
                        static.copy_(tensor)
                graphed.forward.replay()
                return tuple(output.detach() for output in graphed.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                for static, grad in zip(graphed.output_grads, grads, strict=True):
                    if static is not None and static.data_ptr() != grad.data_ptr():
                        static.copy_(grad)
                if graphed.backward is not None:
                    graphed.backward.replay()
                # Not detached: autograd would use a new tensor without a copy as the `grad` of a
                # parameter, which the next replay would overwrite.
                return graphed.input_grads

        def call(*arguments: Any) -> Any:
            leaves, spec = _pytree.tree_flatten(arguments)
            if spec != graphed.spec:
                raise TypeError(
                    "the arguments of a graphed callable must be nested like its sample_args"
                )
            outputs = Replay.apply(*leaves, *graphed.parameters)  # type: ignore[no-untyped-call]
            return _pytree.tree_unflatten(list(outputs), graphed.out_spec)

        return call


def _in_place_of(module: torch.nn.Module, call: Callable[..., Any]) -> torch.nn.Module:
    training = module.training
    eager = module.forward

    def forward(*arguments: Any) -> Any:
        # If the training mode has changed since the capture, run without the graph.
        return call(*arguments) if module.training == training else eager(*arguments)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Return callables whose forward and backward passes replay graphs.

    Several callables share a memory pool. They must be called in the given order, and their
    backward passes must run in reverse order. The next call overwrites the results of a call.

    Args:
        callables: functions or modules that take and return tensors, without hooks. Modules are
            changed in place; after a change to their training mode they run without the graph.
        sample_args: the arguments of the callable, a tuple of tensors or of nested containers of
            tensors; for several callables, a tuple of such tuples. They determine shapes, dtypes
            and ``requires_grad`` of all calls.
        num_warmup_iters: how many times each callable runs before the capture.
        allow_unused_input: if True, inputs that do not affect the results get no gradient; if
            False, they are an error.
        pool: see ``OpenRegGraph.capture_begin``.

    Raises:
        RuntimeError: in an autocast region with a cache; for modules with hooks, or with buffers
            that require grad.
        TypeError: if ``sample_args`` contains anything but tensors.
    """
    if torch.is_autocast_enabled(DEVICE_TYPE) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables: autocast's cache would outlive the graphs' memory; use "
            "torch.autocast(..., cache_enabled=False)"
        )
    single = not isinstance(callables, tuple)
    functions: Sequence[Callable[..., Any]] = (
        callables if isinstance(callables, tuple) else (callables,)
    )
    samples = (sample_args,) if single else sample_args
    if len(samples) != len(functions):
        raise ValueError(
            f"make_graphed_callables: {len(functions)} callables, but sample_args has "
            f"{len(samples)} tuples: pass one tuple of arguments for each callable"
        )
    for function in functions:
        _check_callable(function)
    all_graphed = [
        _Graphed(function, tuple(arguments))
        for function, arguments in zip(functions, samples, strict=True)
    ]
    pool = graph_pool_handle() if pool is None else pool

    # Warm up on a separate stream, so that one-time initialization is done before the capture.
    synchronize()
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for graphed in all_graphed:
            for _ in range(num_warmup_iters):
                graphed.run()
                graphed.make_output_grads()
                graphed.differentiate(allow_unused_input)
            graphed.forget()
    synchronize()

    for graphed in all_graphed:
        with graph(graphed.forward, pool=pool):
            graphed.run()
    for graphed in reversed(all_graphed):
        graphed.make_output_grads()
        if graphed.backward is not None:
            with graph(graphed.backward, pool=pool):
                graphed.differentiate(allow_unused_input)

    results: list[Any] = []
    for graphed in all_graphed:
        call = graphed.replayer()
        function = graphed.function
        results.append(
            _in_place_of(function, call) if isinstance(function, torch.nn.Module) else call
        )
    return results[0] if single else tuple(results)
